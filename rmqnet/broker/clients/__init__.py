"""The clients of a broker: who is connected, in which groups, and what they are told."""
