"""Read-only views of a store that another process may be writing."""
