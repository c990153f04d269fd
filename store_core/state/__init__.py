"""What says who has a store open, and how far it was flushed."""
