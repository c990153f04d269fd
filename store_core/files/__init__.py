"""Read-only files of a store: local maps or any ``pyarrow.fs`` filesystem."""
