"""Files of a store: read from local maps or any ``pyarrow.fs`` filesystem, written locally only."""
