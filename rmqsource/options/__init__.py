"""Option texts become the settings of a read."""
