"""Access control of a broker."""
