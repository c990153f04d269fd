"""Sending messages: which queue, which broker next, what goes over the wire."""
