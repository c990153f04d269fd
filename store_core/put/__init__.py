"""Putting messages: checks, queue offsets, encoding."""
