"""Producers: queue selection, retries and encoding of messages."""
