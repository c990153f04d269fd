# SPDX-License-Identifier: Apache-2.0
"""Facts of whole queues for the tables, and store times of single records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.metadata.columns import NO_TIME
from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_units import read_batch_queue
from rmqsource.metadata.selection import Selection
from store_core.errors import CorruptRecordError
from store_core.queue.compaction_log import CompactionLog, compacted_queues
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.metadata.selection import SelectedQueue
    from rmqsource.options.source_options import SourceOptions
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Int64s = npt.NDArray[np.int64]

NO_RECORD = -1


class QueueFacts(NamedTuple):
    """Queue offsets ``[min_offset, max_offset)``, and log offsets of the first and last record.

    The log offsets are ``NO_RECORD`` if the queue has no message.
    """

    min_offset: int
    max_offset: int
    first_record: int = NO_RECORD
    last_record: int = NO_RECORD


def queue_facts(snapshot: StoreSnapshot, key: SelectedQueue) -> QueueFacts:
    """Return the facts of a queue; reads the ends of a consume queue, all of a batch queue."""
    if key.is_batch:
        units, max_offset, _ = read_batch_queue(snapshot, key)
        if len(units) == 0:
            return QueueFacts(max_offset, max_offset)
        first, last = units["commit_log_offset"][[0, -1]].tolist()
        return QueueFacts(int(units["base_queue_offset"][0]), max_offset, first, last)
    queue = snapshot.consume_queue(key.topic, key.queue_id)
    held = snapshot.queue_range(key.topic, key.queue_id)
    if queue is None or held.min_offset >= held.max_offset:
        return QueueFacts(held.min_offset, held.max_offset)
    unit = queue.exact_units(held.min_offset, held.min_offset + 1)
    first = int(unit["commit_log_offset"][0])
    return QueueFacts(held.min_offset, held.max_offset, first, held.last_start)


def store_times(
    snapshot: StoreSnapshot, options: SourceOptions, commit_log_offsets: Int64s
) -> Int64s:
    """Return the store times (ms) of records; ``NO_TIME`` where none can be read.

    Opens each segment at most once, whatever the order of the offsets.
    """
    times = np.full(len(commit_log_offsets), NO_TIME, np.int64)
    log = snapshot.log
    order = np.argsort(commit_log_offsets, kind="stable")
    ascending = commit_log_offsets[order]
    low = 0
    for segment in log.segments if len(order) else ():
        held = min(segment.size, log.segments.file_size)
        end = min(segment.from_offset + held, snapshot.end_offset)
        low = int(np.searchsorted(ascending, segment.from_offset))
        high = int(np.searchsorted(ascending, end))
        if low >= high:
            continue
        with skip_damaged(f"commit log segment {segment.path}", options):
            frames = log.frames_at(segment, ascending[low:high], snapshot.end_offset)
            found = np.where(frames.ok, frames.column("store_timestamp"), NO_TIME)
            times[order[low:high]] = found
    return times


class CompactedFacts(NamedTuple):
    """Queue offsets ``[min_offset, max_offset)`` of a compacted log, and its number of messages."""

    min_offset: int
    max_offset: int
    messages: int


def compacted_facts(
    snapshot: StoreSnapshot, options: SourceOptions
) -> dict[tuple[str, int], CompactedFacts]:
    """Return the facts of the selected compacted logs, from their units, by (topic, queue id)."""
    if not snapshot.kind.compacted_topics:
        return {}
    selection, is_live = Selection(options), snapshot.state is StoreState.LIVE
    found = {}
    for topic, queue_id in compacted_queues(snapshot.directory):
        if not selection.has_queue(topic, queue_id):
            continue
        with skip_damaged(f"compacted log {topic}/{queue_id}", options):
            found[topic, queue_id] = _facts(snapshot, topic, queue_id, is_live=is_live)
    return found


def _facts(snapshot: StoreSnapshot, topic: str, queue_id: int, *, is_live: bool) -> CompactedFacts:
    with CompactionLog(snapshot.directory, topic, queue_id, is_live=is_live, proved=False) as log:
        for gap in log.file_gaps:
            raise CorruptRecordError(gap.reason, gap.path, gap.position)
        messages = int(log.units["batch_size"].sum(dtype="i8"))
        return CompactedFacts(max(log.min_offset, 0), log.max_offset, messages)
