# SPDX-License-Identifier: Apache-2.0
"""Selection of the queue for a message.

Source: RocketMQ ``TopicPublishInfo``, ``MQFaultStrategy.selectOneMessageQueue``,
``SelectMessageQueueByHash`` (release 5.3.3).
"""

from __future__ import annotations

import itertools
import random
import time
from typing import TYPE_CHECKING, Callable

from store_core.codec.java_string import string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqnet.client.message_queue import MessageQueue

_POSITIVE_INTS = 1 << 31
LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_DURATION_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
ISOLATION_LATENCY_MS = 10_000
"""Latency that a failed send counts as."""


class TopicPublishInfo:
    """The queues of a topic, used in turn from a random start.

    All threads share one turn, whereas a Java producer has one per thread.

    Parameters
    ----------
    queues
        At least one queue, in the order of the route.
    """

    def __init__(self, queues: Sequence[MessageQueue], start: int | None = None) -> None:
        self.queues = tuple(queues)
        self._turn = itertools.count(_random_start() if start is None else start + 1)

    def next_queue(self) -> MessageQueue:
        """Return the next queue in turn."""
        return self.queues[next(self._turn) % len(self.queues)]

    def next_where(self, wanted: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        """Return the next queue that satisfies a condition; None if there is none."""
        for _ in self.queues:
            queue = self.next_queue()
            if wanted(queue):
                return queue
        return None

    def shuffle(self) -> None:
        """Continue at a random queue."""
        self._turn = itertools.count(_random_start())


def select_queue(
    info: TopicPublishInfo, last_broker: str | None, faults: LatencyFaultTolerance | None
) -> MessageQueue:
    """Return the queue to send a message to.

    Parameters
    ----------
    faults
        Past faults of brokers; None if the setting ``sendLatencyFaultEnable`` is off.
    """
    if faults is None:
        return _on_another_broker(info, last_broker)
    if last_broker is not None:
        info.shuffle()
    for is_good in (faults.is_available, faults.is_reachable):
        queue = info.next_where(_wanted(is_good, last_broker))
        if queue is not None:
            return queue
    return info.next_queue()


def select_queue_by_hash(queues: Sequence[MessageQueue], sharding_key: str) -> MessageQueue:
    """Return the queue that a Java producer chooses for a key.

    It stays the same while the topic's queues do not change, so messages of one key stay in order.
    """
    return queues[abs(string_hash(sharding_key)) % len(queues)]


def _on_another_broker(info: TopicPublishInfo, last_broker: str | None) -> MessageQueue:
    if last_broker is None:
        return info.next_queue()
    queue = info.next_where(lambda queue: queue.broker_name != last_broker)
    return info.next_queue() if queue is None else queue


def _wanted(
    is_good: Callable[[str], bool], last_broker: str | None
) -> Callable[[MessageQueue], bool]:
    return lambda queue: queue.broker_name != last_broker and is_good(queue.broker_name)


def _random_start() -> int:
    return random.randrange(_POSITIVE_INTS)


# Source: RocketMQ ``MQFaultStrategy``, ``LatencyFaultToleranceImpl`` (release 5.3.3), without the
# detector that checks whether such brokers are available again.
def monotonic_ms() -> int:
    """Return the milliseconds of a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


def not_available_duration_ms(latency_ms: int) -> int:
    """Return how long (ms) to avoid a broker after a send of this latency."""
    for bound, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_DURATION_MS)):
        if latency_ms >= bound:
            return duration
    return 0


class _FaultItem:
    __slots__ = ("available_from_ms", "reachable")

    def __init__(self) -> None:
        self.available_from_ms = 0
        self.reachable = True


class LatencyFaultTolerance:
    """Availability of brokers, derived from past sends. Not thread-safe."""

    def __init__(self, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._clock_ms = clock_ms
        self._items: dict[str, _FaultItem] = {}

    def update(
        self, broker_name: str, latency_ms: int, *, isolation: bool = False, reachable: bool = True
    ) -> None:
        """Record the result of a send.

        Parameters
        ----------
        isolation
            If True, the send failed: avoid the broker as if it had taken ten seconds.
        reachable
            If False, the broker is not even a second choice until a later call changes this.
        """
        item = self._items.setdefault(broker_name, _FaultItem())
        duration = not_available_duration_ms(ISOLATION_LATENCY_MS if isolation else latency_ms)
        if duration:
            item.available_from_ms = max(item.available_from_ms, self._clock_ms() + duration)
        item.reachable = reachable

    def is_available(self, broker_name: str) -> bool:
        """Return whether the broker need not be avoided (any more); True for unknown brokers."""
        item = self._items.get(broker_name)
        return item is None or self._clock_ms() >= item.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Return ``reachable`` of the broker's last `update`; True for unknown brokers."""
        item = self._items.get(broker_name)
        return item is None or item.reachable
