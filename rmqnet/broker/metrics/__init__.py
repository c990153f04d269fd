# SPDX-License-Identifier: Apache-2.0
"""Figures of a broker, and the server from which monitoring systems read them."""
