"""Processors of a broker, for each kind of request."""
