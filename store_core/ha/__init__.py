"""Replication of an open store: the raw bytes of its log, to slaves or from a master."""
