"""A broker: what its clients ask for, around a store."""
