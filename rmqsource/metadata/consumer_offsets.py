# SPDX-License-Identifier: Apache-2.0
"""Table ``consumer_offsets``: one row per consumer group, topic and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.metadata.columns import NO_TIME, nullable, table_part
from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_facts import NO_RECORD, QueueFacts, queue_facts, store_times
from rmqsource.metadata.queue_units import read_batch_queue
from rmqsource.metadata.selection import SelectedQueue, Selection
from store_core.config.config_files import load_consumer_offsets, warn_of_static_topics
from store_core.errors import StoreFormatError
from store_core.layout import CONFIG_DIR
from store_core.queue.batch_consume_queue import find_unit
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Table
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Int64s = npt.NDArray[np.int64]

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_NO_QUEUE = QueueFacts(0, 0)


class _Commit(NamedTuple):
    group: str
    topic: str
    queue_id: int
    consumer_offset: int


class _Standing(NamedTuple):
    """The queue of one row: its end and begin, its first unconsumed and its last record.

    ``is_gone`` if the queue's topic was deleted.
    """

    broker_offset: int
    min_offset: int = 0
    is_gone: bool = False
    next_record: int = NO_RECORD
    last_record: int = NO_RECORD


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the selected queues in ``consumerOffset.json`` and ``lmqConsumerOffset.json``.

    A queue that a group never committed has no row. ``broker_offset`` is 0 if the queue has no
    directory. ``lag`` is its difference from the consumer offset: below 0 if the group is past the
    end of the queue, as after a cut. A consumer offset below 0 counts as 0; a deleted topic has
    nothing left to consume.
    ``lag_ms`` starts from the first unconsumed message that is still there; it is 0 if none is
    left, and null if a record is lost.
    """
    warn_of_static_topics(snapshot.directory)
    commits: list[_Commit] = []
    with skip_damaged("config/consumerOffset.json", options):
        commits = _commits(snapshot, options)
    queues = _Queues(snapshot, options)
    kept: list[_Commit] = []
    standings: list[_Standing] = []
    for commit in commits:
        standing = queues.standing(commit)
        if standing is not None:
            kept.append(commit)
            standings.append(standing)
    table = np.array(standings, np.int64).reshape(-1, len(_Standing._fields))
    broker, begin, is_gone, next_record, last_record = table.T
    consumed = np.array([commit.consumer_offset for commit in kept], np.int64)
    lag, expired = lag_and_expired(consumed, begin, broker, is_gone)
    yield table_part(
        "consumer_offsets",
        snapshot.directory.uri,
        len(kept),
        group=[commit.group for commit in kept],
        topic=[commit.topic for commit in kept],
        queue_id=[commit.queue_id for commit in kept],
        consumer_offset=consumed,
        broker_offset=broker,
        lag=lag,
        expired=expired,
        lag_ms=_lag_ms(snapshot, options, next_record, last_record),
    )


def lag_and_expired(
    consumed: Int64s, begin: Int64s, end: Int64s, is_gone: Int64s
) -> tuple[Int64s, Int64s]:
    """Return how many messages groups have not consumed, and how many of them are deleted."""
    at = np.maximum(consumed, 0)
    lag = np.where(is_gone, 0, end - at)
    return lag, np.where(is_gone, 0, np.maximum(begin - at, 0))


def _commits(snapshot: StoreSnapshot, options: SourceOptions) -> list[_Commit]:
    snapshot.kind.require_config_files("consumer offsets cannot be read")
    selection = Selection(options)
    commits = []
    for (group, topic), offsets in sorted(load_consumer_offsets(snapshot.directory).items()):
        for queue_id, offset in sorted(offsets.items()):
            if not -_INT32_MAX <= queue_id <= _INT32_MAX or not -_INT64_MAX <= offset <= _INT64_MAX:
                raise StoreFormatError(
                    f"queue {queue_id} of {topic}@{group} has offset {offset}, which is too large",
                    snapshot.directory.resolve(CONFIG_DIR, "consumerOffset.json"),
                )
            if selection.has_queue(topic, queue_id):
                commits.append(_Commit(group, topic, queue_id, offset))
    return commits


class _Queues:
    """Facts of queues; each is read once, however many groups consume from it."""

    def __init__(self, snapshot: StoreSnapshot, options: SourceOptions) -> None:
        self._snapshot = snapshot
        self._options = options
        self._facts: dict[SelectedQueue, QueueFacts | None] = {}

    def standing(self, commit: _Commit) -> _Standing | None:
        """Return a group's position in a queue; None if the queue is damaged and skipped."""
        is_batch = (commit.topic, commit.queue_id) in self._snapshot.batch_queue_paths
        key = SelectedQueue(commit.topic, commit.queue_id, is_batch)
        facts = self._facts_of(key)
        if facts is None:
            return None
        at = max(commit.consumer_offset, facts.min_offset)
        if at >= facts.max_offset:
            end = self._end(commit, key, facts)
            return _Standing(end, facts.min_offset, self._is_gone(commit.topic, facts))
        record: int | None = None
        with skip_damaged(str(key), self._options):
            record = self._record_of(key, at)
        held = _Standing(facts.max_offset, facts.min_offset)
        return (
            None
            if record is None
            else held._replace(next_record=record, last_record=facts.last_record)
        )

    def _is_gone(self, topic: str, facts: QueueFacts) -> bool:
        """Return whether a queue was deleted with its topic rather than lost."""
        return facts is _NO_QUEUE and topic not in (self._snapshot.topic_configs or {})

    def _end(self, commit: _Commit, key: SelectedQueue, facts: QueueFacts) -> int:
        """Return the end of a queue; of a running broker, whose offsets are newer, the end now."""
        is_stopped = self._snapshot.state is StoreState.STOPPED
        path = self._snapshot.queue_paths.get((key.topic, key.queue_id))
        if is_stopped or key.is_batch or path is None or commit.consumer_offset <= facts.max_offset:
            return facts.max_offset
        self._snapshot.directory.forget(path)
        queue = self._snapshot.open_queue(key.topic, key.queue_id, path)
        return max(facts.max_offset, min(commit.consumer_offset, queue.end_of_units()))

    def _facts_of(self, key: SelectedQueue) -> QueueFacts | None:
        if key not in self._facts:
            self._facts[key] = None
            with skip_damaged(str(key), self._options):
                self._facts[key] = self._read_facts(key)
        return self._facts[key]

    def _read_facts(self, key: SelectedQueue) -> QueueFacts:
        exists = key.is_batch or (key.topic, key.queue_id) in self._snapshot.queue_paths
        if not exists:
            self._snapshot.kind.require_queue_files("the lag of groups is not known")
        return queue_facts(self._snapshot, key) if exists else _NO_QUEUE

    def _record_of(self, key: SelectedQueue, queue_offset: int) -> int:
        if key.is_batch:
            units = read_batch_queue(self._snapshot, key).units
            row = find_unit(units, queue_offset)
            return NO_RECORD if row is None else int(units["commit_log_offset"][row])
        queue = self._snapshot.consume_queue(key.topic, key.queue_id)
        if queue is None:
            return NO_RECORD
        unit = queue.exact_units(queue_offset, queue_offset + 1)
        return int(unit["commit_log_offset"][0])


def _lag_ms(
    snapshot: StoreSnapshot,
    options: SourceOptions,
    next_record: npt.NDArray[np.int64],
    last_record: npt.NDArray[np.int64],
) -> Array:
    times = store_times(snapshot, options, np.concatenate([next_record, last_record]))
    oldest, newest = times[: len(next_record)], times[len(next_record) :]
    is_behind = last_record != NO_RECORD
    is_lost = is_behind & ((oldest == NO_TIME) | (newest == NO_TIME))
    is_known = is_behind & ~is_lost
    # Never below 0, even if a clock step makes the last record look older than the first.
    difference = np.where(is_known, newest, 0) - np.where(is_known, oldest, 0)
    return nullable(np.maximum(difference, 0), is_lost)
