"""Consumers: one that asks for messages, and one that is called with them."""
