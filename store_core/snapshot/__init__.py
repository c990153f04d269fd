"""Stores that others may write: as they are at one moment, served as they are, followed."""
