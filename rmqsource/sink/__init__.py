"""Rows to messages: options, checks, columnar encoding and staging of the sinks. Without Spark."""
