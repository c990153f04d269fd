"""Options and filters become a predicate, then splits, then batches of rows."""
