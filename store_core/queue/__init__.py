# SPDX-License-Identifier: Apache-2.0
"""Consume queues of every kind: their files, their range, dispatch into them."""
