# SPDX-License-Identifier: Apache-2.0
"""The command ``rocketmq-store``: one module for each group of commands."""

from __future__ import annotations

from rmqsource.cli.entry import main

__all__ = ["main"]
