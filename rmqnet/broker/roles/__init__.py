"""Roles of a broker: master, slave, or a broker that only reads its store."""
