"""Delay levels: messages of the schedule topic are delivered when they are due."""
