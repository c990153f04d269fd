"""The name of one queue: what producers send to and consumers share out."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker (or its slaves).

    Orders as RocketMQ's ``MessageQueue.compareTo``: topic, broker, queue id. All members of a
    consumer group must see their queues in this order.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} on broker {self.broker_name}"
