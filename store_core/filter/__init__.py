# SPDX-License-Identifier: Apache-2.0
"""Filters of consumers: tag expressions, SQL92, and the bitmaps of extension units."""
