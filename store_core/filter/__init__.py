"""Which messages of a queue a consumer wants."""
