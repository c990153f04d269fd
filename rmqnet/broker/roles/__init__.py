"""What a broker does with its store besides answering: a master, a slave, one that only reads."""
