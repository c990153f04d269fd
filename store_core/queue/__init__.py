"""Consume queues of every kind: their files, their range, dispatch into them."""
