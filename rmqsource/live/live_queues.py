# SPDX-License-Identifier: Apache-2.0
"""Queues of a cluster for planners and readers; plain values only."""

from __future__ import annotations

from typing import NamedTuple

PLAIN, BATCH, SPARSE, UNKNOWN = "plain", "batch", "sparse", "unknown"
"""Kinds of the offsets of a queue's records: consecutive; the first of each inner batch; with gaps,
as in compacted topics; not reported by the broker, so treated as plain."""


class LiveQueue(NamedTuple):
    """A queue of a topic on one broker; sorts as RocketMQ's ``MessageQueue`` does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic!r} on broker {self.broker_name}"


class QueueState(NamedTuple):
    """A queue with the state that its broker reported.

    Attributes
    ----------
    from_time, to_time
        Approximate offsets where the selected times begin and end; None if not selected by time.
    """

    queue: LiveQueue
    store: str
    min_offset: int
    max_offset: int
    kind: str = PLAIN
    from_time: int | None = None
    to_time: int | None = None


class QueueSlice(NamedTuple):
    """A part of a queue that a task reads: offsets ``[start, end)``."""

    queue: LiveQueue
    store: str
    start: int
    end: int
    kind: str = PLAIN

    @property
    def messages(self) -> int:
        """Number of offsets."""
        return self.end - self.start


class LiveSplit(NamedTuple):
    """The parts of queues that one task reads, in order."""

    ranges: tuple[QueueSlice, ...]
