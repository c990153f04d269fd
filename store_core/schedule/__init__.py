# SPDX-License-Identifier: Apache-2.0
"""Delay levels: messages of the schedule topic are delivered when they are due."""
