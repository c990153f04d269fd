"""Recovery of log and queues after a stop or a crash."""
