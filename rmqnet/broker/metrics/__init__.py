"""Figures of a broker, and the server from which monitoring systems read them."""
