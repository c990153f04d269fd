"""What administrators ask of a running cluster and change in it."""
