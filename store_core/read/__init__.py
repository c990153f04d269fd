"""Queries, the same for a snapshot and for a store that is being written."""
