# SPDX-License-Identifier: Apache-2.0
"""The identity of one queue: topic, broker name and queue id."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker (or its slaves).

    Sorts like RocketMQ's ``MessageQueue.compareTo``: by topic, broker, queue id. All members of a
    consumer group must order their queues this way.
    """

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic} on broker {self.broker_name}"
