"""What a broker does for each kind of request."""
