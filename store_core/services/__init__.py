"""Background work of a running store: each service is small, stoppable, and runs once on call."""
