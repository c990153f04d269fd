# SPDX-License-Identifier: Apache-2.0
"""Pull and push consumers, with rebalancing, retries and offsets."""
