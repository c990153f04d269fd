"""Who may do what at a broker."""
