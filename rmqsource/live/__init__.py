# SPDX-License-Identifier: Apache-2.0
"""The data source ``rocketmq``: topics of running clusters, over the network."""
