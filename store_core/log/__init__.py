"""The commit log: where records lie, where it ends, reading and appending."""
