"""Bytes to values and back: scalar, and columnar with Arrow. No files."""
