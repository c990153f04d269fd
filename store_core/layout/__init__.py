"""Every on-disk structure of a RocketMQ store, declared exactly once."""
