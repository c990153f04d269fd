"""The commit log: its segments and records, where it ends, reading and appending."""
