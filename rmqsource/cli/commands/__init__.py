"""The commands of ``rocketmq-store``: a module for those that belong together."""
