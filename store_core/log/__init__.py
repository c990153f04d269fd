# SPDX-License-Identifier: Apache-2.0
"""The commit log: its records, its end, reading and appending."""
