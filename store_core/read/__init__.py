# SPDX-License-Identifier: Apache-2.0
"""Queries that a snapshot and an open store answer alike."""
