"""RocksDB databases of a store, read only: queues, settings, timers, half messages."""
