# SPDX-License-Identifier: Apache-2.0
"""RocksDB databases of a store, read only: queues, settings, timers, half messages."""
