"""Following stores: offsets of a stream, how far a batch goes, what became of a log meanwhile."""
