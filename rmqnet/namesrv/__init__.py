# SPDX-License-Identifier: Apache-2.0
"""A name server: which brokers are up, and where the queues of each topic are."""
