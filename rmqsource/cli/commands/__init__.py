"""The commands of ``rocketmq-store``: one module for each group of related commands."""
