# SPDX-License-Identifier: Apache-2.0
"""Processors of a broker, for each kind of request."""
