"""A broker's settings, and the files below ``config/``."""
