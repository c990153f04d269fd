"""The clients of a broker: connections, groups, and requests to them."""
