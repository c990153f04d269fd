# SPDX-License-Identifier: Apache-2.0
"""The topics and queues that the options select."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.snapshot.store_snapshot import StoreSnapshot


class SelectedQueue(NamedTuple):
    """One queue; ``is_batch`` if in ``batchconsumequeue``, where a unit has several messages."""

    topic: str
    queue_id: int
    is_batch: bool

    def __str__(self) -> str:
        kind = "batch consume queue" if self.is_batch else "consume queue"
        return f"{kind} {self.topic}/{self.queue_id}"


class Selection:
    """Options ``topic``, ``topicPattern`` and ``queueId``; without them, everything."""

    def __init__(self, options: SourceOptions) -> None:
        self._topics = None if options.topics is None else frozenset(options.topics)
        pattern = options.topic_pattern
        self._pattern = None if pattern is None else re.compile(pattern)
        self._queue_ids = None if options.queue_ids is None else frozenset(options.queue_ids)

    def has_topic(self, topic: str) -> bool:
        """Return whether a topic is selected."""
        if self._topics is not None and topic not in self._topics:
            return False
        return self._pattern is None or self._pattern.fullmatch(topic) is not None

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether a queue is selected."""
        if self._queue_ids is not None and queue_id not in self._queue_ids:
            return False
        return self.has_topic(topic)


def selected_queues(snapshot: StoreSnapshot, options: SourceOptions) -> list[SelectedQueue]:
    """Return the selected queues that have a directory, by topic and queue id.

    Raises
    ------
    StoreKindError
        The queues are in a database.
    """
    snapshot.kind.require_queue_files("tables of queues and topics cannot be read")
    selection = Selection(options)
    simple = [SelectedQueue(*key, is_batch=False) for key in snapshot.queue_paths]
    batch = [SelectedQueue(*key, is_batch=True) for key in snapshot.batch_queue_paths]
    chosen = (key for key in simple + batch if selection.has_queue(key.topic, key.queue_id))
    return sorted(chosen)
