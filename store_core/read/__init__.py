"""Queries that a snapshot and an open store answer alike."""
