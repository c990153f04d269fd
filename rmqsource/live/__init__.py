"""The data source ``rocketmq``: topics of running clusters, over the network."""
