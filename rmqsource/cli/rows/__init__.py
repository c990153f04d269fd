"""Rows for commands, from files and from clusters."""
