"""State of a broker besides messages: topics, groups and their offsets."""
