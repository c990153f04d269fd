"""What a broker counts, and how monitoring systems read it."""
