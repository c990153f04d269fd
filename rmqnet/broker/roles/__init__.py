# SPDX-License-Identifier: Apache-2.0
"""Roles of a broker: master, slave, or a broker that only reads its store."""
