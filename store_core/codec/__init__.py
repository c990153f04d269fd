# SPDX-License-Identifier: Apache-2.0
"""Bytes to values and back: scalar, and columnar with Arrow. No files."""
