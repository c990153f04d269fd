"""Which queue a message goes to.

Source: RocketMQ ``TopicPublishInfo``, ``MQFaultStrategy.selectOneMessageQueue``,
``SelectMessageQueueByHash`` (release 5.3.3).
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Callable

from store_core.codec.java_string import string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.producer.fault_tolerance import LatencyFaultTolerance

_POSITIVE_INTS = 1 << 31


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
