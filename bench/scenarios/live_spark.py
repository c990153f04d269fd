# SPDX-License-Identifier: Apache-2.0
"""Spark on a running cluster, compared with RocketMQ's own clients."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from bench.figures import rate_figure
from bench.running_cluster import BODY_BYTES, RunningCluster, running_cluster
from bench.spark_side import run_to_noop, seconds_of

if TYPE_CHECKING:
    from bench.context import Context
    from bench.figures import Figure

_QUEUES = 4
_TASKS = 2
_IN_FLIGHT = 64


def read(context: Context) -> list[Figure]:
    """Read a topic in a batch: every column of every message."""
    count = 20_000 if context.quick else 1_000_000
    ours, java = [], []
    with running_cluster(context, {"filled": _QUEUES, "warm": _QUEUES}) as cluster:
        cluster.fill("warm", 1_000)
        cluster.fill("filled", count)
        run_to_noop(_frame(context, cluster, "warm"))
        for _ in range(context.store_runs):
            java.append(cluster.java_pull_seconds("filled", count, _TASKS))
            ours.append(seconds_of(partial(run_to_noop, _frame(context, cluster, "filled"))))
        _check(context, cluster, "filled", count)
    return [
        rate_figure(
            "zm",
            f"Spark batch read of a topic, 1 KB, {_TASKS} tasks",
            f"Java pull consumers, {_TASKS} threads",
            rows=count,
            ours_seconds=ours,
            other_seconds=java,
            must=0.4,
            aim=0.8,
        )
    ]


def write(context: Context) -> list[Figure]:
    """Write rows to a topic."""
    count = 20_000 if context.quick else 500_000
    runs = range(context.store_runs)
    topics = [f"{side}_{run}" for run in runs for side in ("java", "ours")]
    ours, java = [], []
    with running_cluster(context, dict.fromkeys([*topics, "warm"], _QUEUES)) as cluster:
        rows = _rows(context, count)
        _save(rows.limit(1_000), cluster, "warm")
        for run in runs:
            java.append(cluster.java_async_seconds(f"java_{run}", count, _IN_FLIGHT, rounds=1))
            ours.append(seconds_of(partial(_save, rows, cluster, f"ours_{run}")))
            _check(context, cluster, f"ours_{run}", count)
    return [
        rate_figure(
            "zn",
            f"Spark write to a topic, 1 KB, {_TASKS} tasks",
            f"Java producer, {_IN_FLIGHT} in flight",
            rows=count,
            ours_seconds=ours,
            other_seconds=java,
            must=0.5,
            aim=1.0,
        )
    ]


def _frame(context: Context, cluster: RunningCluster, topic: str, **options: str) -> Any:
    reader = context.spark.read.format("rocketmq").option("namesrvAddr", cluster.namesrv_addr)
    if "table" not in options:
        reader = reader.option("minPartitions", _TASKS)
    return reader.options(topic=topic, **options).load()


def _rows(context: Context, count: int) -> Any:
    """Return rows in memory, so that creating them is not measured."""
    body = f"cast(repeat('x', {BODY_BYTES - 10}) || lpad(id, 10, '0') AS binary) AS body"
    ids = context.spark.range(0, count, numPartitions=_TASKS)
    rows = ids.selectExpr(body, "'tag' || id % 7 AS tags", "'order' || id AS keys").cache()
    rows.count()
    return rows


def _save(rows: Any, cluster: RunningCluster, topic: str) -> None:
    writer = rows.write.format("rocketmq").option("namesrvAddr", cluster.namesrv_addr)
    writer.option("topic", topic).mode("append").save()


def _check(context: Context, cluster: RunningCluster, topic: str, count: int) -> None:
    queues = _frame(context, cluster, topic, table="queues")
    found = queues.groupBy().sum("messages").collect()[0][0]
    if found != count:
        raise ValueError(f"topic {topic} has {found} messages, not {count}")
