# SPDX-License-Identifier: Apache-2.0
"""Transactions of an open store: half messages, their ends, and the checks of those left open."""
