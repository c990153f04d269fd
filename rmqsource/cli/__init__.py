"""The command ``rocketmq-store``: one module a group of commands."""

from __future__ import annotations

from rmqsource.cli.entry import main

__all__ = ["main"]
