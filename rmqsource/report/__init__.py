"""One page about a store."""
