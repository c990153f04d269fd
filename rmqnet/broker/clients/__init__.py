# SPDX-License-Identifier: Apache-2.0
"""The clients of a broker: connections, groups, and requests to them."""
