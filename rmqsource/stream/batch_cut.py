# SPDX-License-Identifier: Apache-2.0
"""Where a stream's batch ends within its limits, and how many messages wait."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.scan.row_filter import frame_mask
from store_core.layout import LMQ_PREFIX
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqsource.scan.predicate import ScanPredicate
    from store_core.snapshot.store_snapshot import StoreSnapshot

_MOST_COUNTED_BYTES = 256 << 20
"""At most about this much of the log is searched for the messages of a batch. Where they are rare,
a batch has fewer than its limit."""


class BatchBudget(NamedTuple):
    """How many messages and bytes of a store's log a batch may have; no limit if None."""

    messages: int | None = None
    log_bytes: int | None = None


def shares(limit: int | None, waiting: Sequence[int]) -> list[int | None]:
    """Share a limit among stores in proportion to the bytes waiting in each, at least 1 each.

    A limit of 10 for stores with 600, 300 and 0 waiting bytes gives 6, 3 and 1.
    """
    total = max(sum(waiting), 1)
    return [None if limit is None else max(limit * own // total, 1) for own in waiting]


def cut_batch(
    snapshot: StoreSnapshot, start: int, end: int, selection: ScanPredicate, budget: BatchBudget
) -> int:
    """Return the end of the batch that begins at ``start``: the end of a record, at most ``end``.

    The batch has at least one record, if there is one.
    """
    if budget.log_bytes is not None and start + budget.log_bytes < end:
        end = _within_bytes(snapshot, start, end, budget.log_bytes)
    if budget.messages is None:
        return end
    return _within_messages(snapshot, start, end, selection, budget.messages)


def _within_bytes(snapshot: StoreSnapshot, start: int, end: int, log_bytes: int) -> int:
    """Return the end of the last record that fits, or of the first one."""
    first = snapshot.log.segments.find(start + log_bytes)
    begin = max(start, first.from_offset) if first is not None else start
    reached = begin
    for frames in scan_frames(snapshot.log, begin, end, on_gap=skip_gap):
        ends = frames.column("commit_log_offset") + frames.column("total_size")
        count = int(np.searchsorted(ends, start + log_bytes, "right"))
        if count:
            reached = int(ends[count - 1])
        if count < len(ends):
            return reached if reached > start else int(ends[0])
    return end


def _within_messages(
    snapshot: StoreSnapshot, start: int, end: int, selection: ScanPredicate, messages: int
) -> int:
    """Return the end of the last of the first ``messages`` selected messages."""
    left = messages
    for frames in scan_frames(snapshot.log, start, end, on_gap=skip_gap):
        rows = np.flatnonzero(frame_mask(frames, selection, undispatched=False))
        ends = frames.column("commit_log_offset") + frames.column("total_size")
        if len(rows) >= left:
            return int(ends[rows[left - 1]])
        left -= len(rows)
        if int(ends[-1]) - start >= _MOST_COUNTED_BYTES:
            return int(ends[-1])
    return end


def count_messages(
    snapshot: StoreSnapshot, start: int, end: int, selection: ScanPredicate, least: int
) -> int:
    """Return how many messages are in ``[start, end)``; counting stops soon after ``least``."""
    found = 0
    for frames in scan_frames(snapshot.log, start, end, on_gap=skip_gap):
        found += int(frame_mask(frames, selection, undispatched=False).sum())
        if found >= least:
            break
    return found


def waiting_messages(
    snapshot: StoreSnapshot, selection: ScanPredicate, start: int, end: int
) -> int | None:
    """Return how many messages of the selected queues are in ``[start, end)``, by their units.

    None if the queues are in a database.
    """
    if snapshot.kind.queue_database:
        return None
    keys = [*snapshot.queue_paths, *snapshot.batch_queue_paths]
    chosen = [key for key in keys if _is_selected(selection, *key)]
    return sum(_units_between(snapshot, *key, start, end) for key in chosen)


def _is_selected(selection: ScanPredicate, topic: str, queue_id: int) -> bool:
    named, pattern = selection.topics, selection.topic_pattern
    if topic.startswith(LMQ_PREFIX) or (named is not None and topic not in named):
        return False
    if pattern is not None and re.fullmatch(pattern, topic) is None:
        return False
    return selection.queue_ids is None or queue_id in selection.queue_ids


def _units_between(snapshot: StoreSnapshot, topic: str, queue_id: int, start: int, end: int) -> int:
    simple = snapshot.consume_queue(topic, queue_id)
    if simple is not None:
        held = snapshot.queue_range(topic, queue_id).max_offset
        if snapshot.queue_range(topic, queue_id).last_end <= start:
            return 0
        return simple.correct_min_offset(end, held) - simple.correct_min_offset(start, held)
    units = snapshot.batch_units(topic, queue_id)
    if units is None:
        return 0
    offsets = units["commit_log_offset"]
    inside = (offsets >= start) & (offsets < end)
    return int(units["batch_size"][inside].sum())
