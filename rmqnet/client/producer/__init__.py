# SPDX-License-Identifier: Apache-2.0
"""Producers: queue selection, retries and encoding of messages."""
