"""Queues of a cluster as planners and readers know them; plain values only."""

from __future__ import annotations

from typing import NamedTuple

PLAIN, BATCH, SPARSE, UNKNOWN = "plain", "batch", "sparse", "unknown"
"""What the offsets of a queue's records are: one after the other; first ones of inner batches;
with gaps, as a compacted topic has; not told by the broker, so taken for plain ones."""


class LiveQueue(NamedTuple):
    """A queue of a topic on one broker; sorts as RocketMQ's ``MessageQueue`` does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of topic {self.topic!r} on broker {self.broker_name}"


class QueueState(NamedTuple):
    """A queue with what its broker said of it.

    Attributes
    ----------
    from_time, to_time
        Where a time that is asked for begins and ends, about; None: not asked.
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
        """How many offsets it has."""
        return self.end - self.start


class LiveSplit(NamedTuple):
    """What one task reads: parts of queues, in order."""

    ranges: tuple[QueueSlice, ...]
