# SPDX-License-Identifier: Apache-2.0
"""Rows for commands, from files and from clusters."""
