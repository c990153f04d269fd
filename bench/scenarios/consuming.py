# SPDX-License-Identifier: Apache-2.0
"""Consumers of a running cluster, compared with RocketMQ's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import rate_figure
from bench.running_cluster import running_cluster
from bench.side_process import python_side

if TYPE_CHECKING:
    from bench.context import Context
    from bench.figures import Figure
    from bench.running_cluster import RunningCluster

_TOPIC = "consumed"
_QUEUES = 8
_MESSAGES, _QUICK_MESSAGES = 400_000, 20_000


def push_consumer(context: Context) -> list[Figure]:
    """Call a listener that does nothing with every message of a topic, 1 KB each."""
    count = _QUICK_MESSAGES if context.quick else _MESSAGES
    ours, java = [], []
    with running_cluster(context, {_TOPIC: _QUEUES}) as cluster:
        cluster.fill(_TOPIC, count)
        for _ in range(context.store_runs):
            java.append(cluster.java_push_seconds(_TOPIC, count))
            ours.append(_our_seconds(cluster, count))
    return [
        rate_figure(
            "zl",
            f"push consumer, listener that does nothing, {count:,} of 1 KB in {_QUEUES} queues",
            "Java push consumer",
            rows=count,
            ours_seconds=ours,
            other_seconds=java,
            must=0.8,
            aim=1,
        )
    ]


def _our_seconds(cluster: RunningCluster, count: int) -> float:
    """Return the seconds of a warm round in a process of its own, as Java's is."""
    with python_side("bench.consumer_side", cluster.namesrv_addr, _TOPIC, count) as side:
        side.figure("consumed")
        return float(side.figure("consumed")["seconds"])
