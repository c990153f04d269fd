"""Work on a closed store: check, repair, salvage."""
