"""What a broker knows besides messages: topics, groups and how far they are."""
