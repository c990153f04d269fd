# SPDX-License-Identifier: Apache-2.0
"""Repair of a store that no process has open: recover it, rebuild its queues and index."""
