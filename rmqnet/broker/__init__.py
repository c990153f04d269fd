# SPDX-License-Identifier: Apache-2.0
"""A broker: answers requests of clients from a store."""
