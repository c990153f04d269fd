"""A broker: answers requests of clients from a store."""
