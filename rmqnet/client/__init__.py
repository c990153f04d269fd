"""A client of a running cluster: routes, producer, consumers, admin."""
