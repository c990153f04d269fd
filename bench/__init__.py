"""Benchmarks: this project, RocketMQ's own Java code and plain Spark, compared in one run."""
