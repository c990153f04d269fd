# SPDX-License-Identifier: Apache-2.0
"""Replication of an open store: the raw bytes of its log, to slaves or from a master."""
