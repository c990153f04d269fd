"""Work on a store that nobody has open: recover it, make its queues and index anew."""
