# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: this project, RocketMQ's own Java code and plain Spark, compared in one run."""
