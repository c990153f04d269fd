"""Which queue a message goes to.

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
"""A failed send counts as one that took this long."""


class TopicPublishInfo:
    """The queues of a topic, taken in turn from a random one on.

    One turn for all threads, where a Java producer has one for each.

    Parameters
    ----------
    queues
        At least one, in the order of the route.
    """

    def __init__(self, queues: Sequence[MessageQueue], start: int | None = None) -> None:
        self.queues = tuple(queues)
        self._turn = itertools.count(_random_start() if start is None else start + 1)

    def next_queue(self) -> MessageQueue:
        """Return the queue whose turn it is."""
        return self.queues[next(self._turn) % len(self.queues)]

    def next_where(self, wanted: Callable[[MessageQueue], bool]) -> MessageQueue | None:
        """Return the next queue that is wanted; None if none of them is."""
        for _ in self.queues:
            queue = self.next_queue()
            if wanted(queue):
                return queue
        return None

    def shuffle(self) -> None:
        """Go on at a random queue."""
        self._turn = itertools.count(_random_start())


def select_queue(
    info: TopicPublishInfo, last_broker: str | None, faults: LatencyFaultTolerance | None
) -> MessageQueue:
    """Return where to send a message.

    Parameters
    ----------
    faults
        What is known about brokers; None: the setting ``sendLatencyFaultEnable`` is off.
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

    It is the same as long as the topic keeps its queues; so messages of one key stay in order.
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
# detector that asks such brokers whether they are back.
def monotonic_ms() -> int:
    """Return milliseconds of a clock that only goes forward."""
    return time.monotonic_ns() // 1_000_000


def not_available_duration_ms(latency_ms: int) -> int:
    """Return how long a broker rests that took so long."""
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
    """What past sends say about each broker. Not thread-safe."""

    def __init__(self, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._clock_ms = clock_ms
        self._items: dict[str, _FaultItem] = {}

    def update(
        self, broker_name: str, latency_ms: int, *, isolation: bool = False, reachable: bool = True
    ) -> None:
        """Note how a send went.

        Parameters
        ----------
        isolation
            It failed: the broker rests as if it had taken ten seconds.
        reachable
            False: not even the second choice, until a send succeeds there.
        """
        item = self._items.setdefault(broker_name, _FaultItem())
        duration = not_available_duration_ms(ISOLATION_LATENCY_MS if isolation else latency_ms)
        if duration:
            item.available_from_ms = max(item.available_from_ms, self._clock_ms() + duration)
        item.reachable = reachable

    def is_available(self, broker_name: str) -> bool:
        """Say whether it has rested long enough; brokers never seen have."""
        item = self._items.get(broker_name)
        return item is None or self._clock_ms() >= item.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Say whether the last send there was answered, or at least might be."""
        item = self._items.get(broker_name)
        return item is None or item.reachable
