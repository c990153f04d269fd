"""Administration of a running cluster."""
