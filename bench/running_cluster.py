# SPDX-License-Identifier: Apache-2.0
"""A running RocketMQ on loopback, and RocketMQ's clients as the other side of figures."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, NamedTuple

from bench.java_side import last_round
from bench.side_process import python_side

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.context import Context
    from bench.side_process import SideProcess

BODY_BYTES = 1024
BROKER_NAME = "broker-a"
_FILL_BATCH = 500


class RunningCluster(NamedTuple):
    """A name server and one broker (5.3.3, its own settings) in a JVM.

    Parameters
    ----------
    context
        Context of the run.
    namesrv_addr
        ``HOST:PORT`` for clients.
    store
        The broker's store, for the file source.
    pid
        Process id of name server and broker.
    """

    context: Context
    namesrv_addr: str
    store: str
    pid: int

    def fill(self, topic: str, count: int, body_bytes: int = BODY_BYTES) -> None:
        """Send messages to a topic as fast as possible, evenly to its queues."""
        self._produce(topic, count, body_bytes, "batch", _FILL_BATCH, rounds=1)

    def java_sync_seconds(self, topic: str, count: int) -> float:
        """Return the seconds of a Java producer's warm round that sends messages one by one.

        The topic receives twice this number of messages.
        """
        return self._produce(topic, count, BODY_BYTES, "sync", 0)

    def java_async_seconds(self, topic: str, count: int, in_flight: int, rounds: int = 2) -> float:
        """Return the seconds for a Java producer with this many messages in flight."""
        return self._produce(topic, count, BODY_BYTES, "async", in_flight, rounds=rounds)

    def java_batch_seconds(self, topic: str, count: int, size: int) -> float:
        """Return the seconds for a Java producer that sends batches."""
        return self._produce(topic, count, BODY_BYTES, "batch", size)

    def java_threads_seconds(self, topic: str, count: int, threads: int) -> float:
        """Return the seconds for a Java producer of several threads, each with 64 in flight."""
        return self._produce(topic, count, BODY_BYTES, "threads", threads)

    def java_latency_ms(self, topic: str, count: int, rate: int) -> tuple[float, float]:
        """Return median and 99th percentile of the time from send to a Java push consumer."""
        figures = self.context.java.run("latency", self.namesrv_addr, topic, count, rate)
        figure = last_round(figures, "latency")
        return float(figure["median_ms"]), float(figure["p99_ms"])

    def java_push_seconds(self, topic: str, count: int) -> float:
        """Return the seconds from the first to the last message of a warm Java push consumer."""
        figures = self.context.java.run("push", self.namesrv_addr, topic, count)
        return float(last_round(figures, "consumed")["seconds"])

    def java_pull_seconds(self, topic: str, count: int, threads: int) -> float:
        """Return the seconds that warm Java pull consumers need for this many messages."""
        figures = self.context.java.run("pull", self.namesrv_addr, topic, threads)
        figure = last_round(figures, "pulled")
        if figure["count"] != count:
            raise ValueError(f"Java pulled {figure['count']} of {count} messages of {topic}")
        return float(figure["seconds"])

    def _produce(
        self, topic: str, count: int, body_bytes: int, mode: str, each: int, rounds: int = 2
    ) -> float:
        arguments = (self.namesrv_addr, topic, count, body_bytes, mode, each)
        figures = self.context.java.run("produce", *arguments, options=[f"-Drounds={rounds}"])
        figure = last_round(figures, "produced")
        if figure["failed"]:
            raise ValueError(f"Java failed to send {figure['failed']} of {count} messages")
        return float(figure["seconds"])


@contextmanager
def running_cluster(
    context: Context, topics: Mapping[str, int], heap: str = "4g"
) -> Iterator[RunningCluster]:
    """Run a cluster with topics, given their number of queues; its store is deleted at the end."""

    def start(*arguments: str) -> SideProcess:
        return context.java.start("cluster", *arguments, options=[f"-Xmx{heap}"])

    with _cluster(context, topics, start) as cluster:
        yield cluster


@contextmanager
def served_cluster(context: Context, topics: Mapping[str, int]) -> Iterator[RunningCluster]:
    """Run our cluster in a process of its own, otherwise like `running_cluster`."""

    def start(*arguments: str) -> SideProcess:
        return python_side("bench.broker_side", *arguments)

    with _cluster(context, topics, start) as cluster:
        yield cluster


@contextmanager
def _cluster(
    context: Context, topics: Mapping[str, int], start: Callable[..., SideProcess]
) -> Iterator[RunningCluster]:
    root = (context.work / "live-cluster").resolve()
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    wanted = [f"{name}={queues}" for name, queues in topics.items()]
    try:
        with start(str(root), *wanted) as process:
            port = process.figure("listening")["port"]
            yield RunningCluster(context, f"127.0.0.1:{port}", str(root), process.pid)
    finally:
        shutil.rmtree(root, ignore_errors=True)
