# SPDX-License-Identifier: Apache-2.0
"""Our broker compared with RocketMQ's, both with RocketMQ's own clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

from bench.figures import Figure, rate_figure
from bench.running_cluster import running_cluster, served_cluster
from bench.worker_memory import private_bytes
from rmqnet import Message, Producer, RemotingError, SendFailedError, TopicNotFoundError

if TYPE_CHECKING:
    from bench.context import Context
    from bench.running_cluster import RunningCluster

_QUEUES = 8
_BATCH = 100
_THREADS = 4
_RATE = 1000
_RUNS = 2
_PAUSE_S = 0.005
_NOT_YET = (RemotingError, SendFailedError, TopicNotFoundError)

Measure = Callable[["RunningCluster"], float]


def producers(context: Context) -> list[Figure]:
    """Send from Java producers to both brokers, one by one and in batches."""
    single = 4_000 if context.quick else 100_000
    batched = 10_000 if context.quick else 400_000
    return [
        _rates(
            context,
            "zo",
            f"Java producer, {_THREADS} threads, asynchronous, 1 KB, to our broker",
            single,
            lambda cluster: cluster.java_threads_seconds("sent", single, _THREADS),
            (0.8, 1.0),
        ),
        _rates(
            context,
            "zo",
            f"Java producer, batches of {_BATCH}, 1 KB, to our broker",
            batched,
            lambda cluster: cluster.java_batch_seconds("sent", batched, _BATCH),
            (0.8, 1.0),
        ),
    ]


def consumers(context: Context) -> list[Figure]:
    """Drain a topic of both brokers with Java consumers."""
    count = 20_000 if context.quick else 1_000_000

    def drain(cluster: RunningCluster) -> float:
        cluster.fill("sent", count)
        return cluster.java_push_seconds("sent", count)

    return [
        _rates(
            context,
            "zp",
            f"Java push consumer drains {count:,} of 1 KB from our broker",
            count,
            drain,
            (0.8, 1.0),
        )
    ]


def latency(context: Context) -> list[Figure]:
    """Measure the time from the send until a waiting Java consumer has the message."""
    count = 1_000 if context.quick else 10_000
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "java": []}
    for _ in range(1 if context.quick else _RUNS):
        for name, cluster_of in (("java", running_cluster), ("ours", served_cluster)):
            with cluster_of(context, {"sent": _QUEUES}) as cluster:
                found[name].append(cluster.java_latency_ms("sent", count, _RATE))
    return [
        Figure(
            scenario="zq",
            what=f"put until a long poll has it, {_RATE:,} messages a second, {what}",
            against="RocketMQ's broker",
            ours=min(each[at] for each in found["ours"]),
            other=min(each[at] for each in found["java"]),
            unit="ms",
            higher_is_better=False,
            must=1.3,
            aim=1.0,
        )
        for at, what in enumerate(("median", "99th percentile"))
    ]


def start(context: Context) -> list[Figure]:
    """Measure the time from process start until a send is accepted, and the memory then."""
    seconds: dict[str, list[float]] = {"ours": [], "java": []}
    memory: dict[str, list[float]] = {"ours": [], "java": []}
    for _ in range(1 if context.quick else 3):
        for name, started in (
            ("java", running_cluster(context, {"first": _QUEUES}, heap="1500m")),
            ("ours", served_cluster(context, {"first": _QUEUES})),
        ):
            begin = time.perf_counter()
            with started as cluster:
                memory[name].append(private_bytes(cluster.pid) / (1 << 20))
                _send_first(cluster)
                seconds[name].append(time.perf_counter() - begin)
    return [
        Figure(
            scenario="zr",
            what="start of name server and broker, until the first send is accepted",
            against="RocketMQ's, in one JVM",
            ours=min(seconds["ours"]),
            other=min(seconds["java"]),
            unit="s",
            higher_is_better=False,
            must=0.2,
            aim=0.1,
        ),
        Figure(
            scenario="zr",
            what="memory after the start, without mapped files, empty store",
            against="RocketMQ's, in one JVM",
            ours=min(memory["ours"]),
            other=min(memory["java"]),
            unit="MB",
            higher_is_better=False,
            must=0.3,
            aim=0.2,
        ),
    ]


def _send_first(cluster: RunningCluster) -> None:
    with Producer("bench", cluster.namesrv_addr) as producer:
        while True:
            try:
                producer.send(Message("first", b"first"), timeout_s=1)
            except _NOT_YET:
                time.sleep(_PAUSE_S)
            else:
                return


def _rates(
    context: Context,
    scenario: str,
    what: str,
    count: int,
    measure: Measure,
    bounds: tuple[float, float],
) -> Figure:
    ours, java = [], []
    for _ in range(1 if context.quick else _RUNS):
        with running_cluster(context, {"sent": _QUEUES}) as cluster:
            java.append(measure(cluster))
        with served_cluster(context, {"sent": _QUEUES}) as cluster:
            ours.append(measure(cluster))
    return rate_figure(
        scenario,
        what,
        "to RocketMQ's broker",
        rows=count,
        ours_seconds=ours,
        other_seconds=java,
        must=bounds[0],
        aim=bounds[1],
    )
