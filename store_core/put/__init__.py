# SPDX-License-Identifier: Apache-2.0
"""Putting messages: checks, queue offsets, encoding."""
