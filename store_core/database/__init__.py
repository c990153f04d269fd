"""RocksDB databases of a store, read only: queues and settings of brokers of 5.2 and later."""
