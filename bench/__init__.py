"""Benchmarks: this project beside RocketMQ's own Java code and beside Spark alone, in one run."""
