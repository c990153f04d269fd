# SPDX-License-Identifier: Apache-2.0
"""A client of a running cluster: routes, producer, consumers, admin."""
