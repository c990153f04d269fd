# SPDX-License-Identifier: Apache-2.0
"""The adapter between Spark and the formats: shared classes, and a module for each format."""
