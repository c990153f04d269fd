"""The one adapter between Spark and the formats: its classes exist once, a format has a module."""
