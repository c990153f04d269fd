"""The adapter between Spark and the formats: shared classes, and a module for each format."""
