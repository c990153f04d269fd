"""The commit log: its records, its end, reading and appending."""
