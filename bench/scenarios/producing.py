# SPDX-License-Identifier: Apache-2.0
"""Producers (single messages, many in flight, batches), compared with RocketMQ's own."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Callable

from bench.figures import rate_figure
from bench.running_cluster import BODY_BYTES, RunningCluster, running_cluster
from rmqnet import Message, Producer, SendStatus

if TYPE_CHECKING:
    from concurrent.futures import Future

    from bench.context import Context
    from bench.figures import Figure
    from rmqnet import SendResult

_QUEUES = 4
_IN_FLIGHT = 64
_BATCH = 100
_TIMEOUT_MS = 60_000
_RUNS = 2

Send = Callable[[Producer, str, int], None]


def synchronous(context: Context) -> list[Figure]:
    """Send one message after the other."""
    count = 500 if context.quick else 20_000
    return _beside_java(
        context,
        "zi",
        "synchronous producer, one connection, 1 KB",
        count,
        _one_by_one,
        lambda cluster, topic: cluster.java_sync_seconds(topic, count),
        (0.8, 1.0),
    )


def asynchronous(context: Context) -> list[Figure]:
    """Send with 64 messages in flight."""
    count = 2_000 if context.quick else 50_000
    return _beside_java(
        context,
        "zj",
        f"asynchronous producer, {_IN_FLIGHT} in flight, 1 KB",
        count,
        _many_under_way,
        lambda cluster, topic: cluster.java_async_seconds(topic, count, _IN_FLIGHT),
        (0.9, 1.0),
    )


def batches(context: Context) -> list[Figure]:
    """Send 100 messages per request."""
    count = 5_000 if context.quick else 100_000
    return _beside_java(
        context,
        "zk",
        f"producer of batches of {_BATCH}, 1 KB",
        count,
        _in_batches,
        lambda cluster, topic: cluster.java_batch_seconds(topic, count, _BATCH),
        (1.0, 1.0),
    )


def _beside_java(
    context: Context,
    scenario: str,
    what: str,
    count: int,
    send: Send,
    java: Callable[[RunningCluster, str], float],
    bounds: tuple[float, float],
) -> list[Figure]:
    """Measure both sides in turn, each in its second round."""
    runs = 1 if context.quick else _RUNS
    names = [f"{side}_{run}" for run in range(runs) for side in ("java", "ours")]
    ours, other = [], []
    with running_cluster(context, dict.fromkeys(names, _QUEUES)) as cluster:
        for run in range(runs):
            other.append(java(cluster, f"java_{run}"))
            ours.append(_second_round(cluster, f"ours_{run}", count, send))
    return [
        rate_figure(
            scenario,
            what,
            "Java producer",
            rows=count,
            ours_seconds=ours,
            other_seconds=other,
            must=bounds[0],
            aim=bounds[1],
        )
    ]


def _second_round(cluster: RunningCluster, topic: str, count: int, send: Send) -> float:
    seconds = 0.0
    with Producer("bench", cluster.namesrv_addr, send_msg_timeout_ms=_TIMEOUT_MS) as producer:
        for _ in range(2):
            begin = time.perf_counter()
            send(producer, topic, count)
            seconds = time.perf_counter() - begin
    return seconds


def _message(topic: str, number: int, body: bytes) -> Message:
    return Message(topic, body, tags=f"tag{number % 7}", keys=f"order{number}")


def _body() -> bytes:
    return random.Random(1).randbytes(BODY_BYTES)


def _one_by_one(producer: Producer, topic: str, count: int) -> None:
    body = _body()
    for number in range(count):
        _check(producer.send(_message(topic, number, body)))


def _many_under_way(producer: Producer, topic: str, count: int) -> None:
    body = _body()
    room = threading.Semaphore(_IN_FLIGHT)
    failed: list[BaseException | SendResult] = []

    def ended(future: Future[SendResult]) -> None:
        error = future.exception()
        if error is not None:
            failed.append(error)
        elif future.result().status is not SendStatus.SEND_OK:
            failed.append(future.result())
        room.release()

    for number in range(count):
        room.acquire()
        producer.send_async(_message(topic, number, body)).add_done_callback(ended)
    producer.flush()
    if failed:
        raise ValueError(f"{len(failed)} of {count} messages failed: {failed[0]}")


def _in_batches(producer: Producer, topic: str, count: int) -> None:
    body = _body()
    for begin in range(0, count, _BATCH):
        numbers = range(begin, min(count, begin + _BATCH))
        _check(producer.send_batch([_message(topic, number, body) for number in numbers]))


def _check(result: SendResult) -> None:
    if result.status is not SendStatus.SEND_OK:
        raise ValueError(f"not stored as it should be: {result}")
