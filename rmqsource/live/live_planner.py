# SPDX-License-Identifier: Apache-2.0
"""Plan which queue offsets a read takes and how tasks share them; pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqsource.live.live_queues import LiveQueue, LiveSplit, QueueSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.live.live_queues import QueueState
    from rmqsource.options.offsets import OffsetBound
    from rmqsource.scan.predicate import ScanPredicate

_SPLIT_MESSAGES = 1_000_000
"""Planned limit of messages in a split, as a failed task has to read its split again."""
_MIN_BALANCED_MESSAGES = 20_000
"""Balancing does not make splits smaller than this, as a task costs about as much."""


class Missing(NamedTuple):
    """Selected offsets ``[start, stop)`` of a queue that are not there."""

    queue: LiveQueue
    store: str
    start: int
    stop: int
    held: tuple[int, int]
    """First offset of the queue, and its end."""

    def __str__(self) -> str:
        low, high = self.held
        return (
            f"offsets {self.start} to {self.stop - 1} of {self.queue} do not exist; it has "
            f"{f'{low} to {high - 1}' if low < high else f'no message, the next gets {high}'}"
        )


def selects_queue(predicate: ScanPredicate, queue_id: int) -> bool:
    """Return whether rows of a queue with this id may match."""
    wanted = predicate.queue_ids
    return (wanted is None or queue_id in wanted) and predicate.queue_id_range.contains(queue_id)


def plan_ranges(
    states: Iterable[QueueState], predicate: ScanPredicate
) -> tuple[list[QueueSlice], list[Missing]]:
    """Return the parts of the queues that contain all matching rows, and the missing offsets."""
    ranges: list[QueueSlice] = []
    missing: list[Missing] = []
    for state in sorted(states):
        if predicate.is_empty or not selects_queue(predicate, state.queue.queue_id):
            continue
        missing += _missing(state, predicate)
        start, end = _bounds(state, predicate)
        if start < end:
            ranges.append(QueueSlice(state.queue, state.store, start, end, state.kind))
    return ranges, missing


def _named(bound: OffsetBound | None, queue: LiveQueue) -> int | None:
    return None if bound is None else bound.offset_of(queue.topic, queue.queue_id)


def _missing(state: QueueState, predicate: ScanPredicate) -> Iterator[Missing]:
    """Yield the offsets that ``startingOffsets`` selects and the queue does not have."""
    start = _named(predicate.starting_offsets, state.queue)
    if start is None:
        return
    end = _named(predicate.ending_offsets, state.queue)
    low, high = state.min_offset, state.max_offset
    first = min(low, high if end is None else end)
    if start < first:
        yield Missing(state.queue, state.store, start, first, (low, high))
    elif start > high:
        yield Missing(state.queue, state.store, high, start, (low, high))


def _bounds(state: QueueState, predicate: ScanPredicate) -> tuple[int, int]:
    wanted = predicate.queue_offset_range
    starts = [
        state.min_offset,
        _named(predicate.starting_offsets, state.queue),
        wanted.start,
        state.from_time,
    ]
    ends = [
        state.max_offset,
        _named(predicate.ending_offsets, state.queue),
        wanted.stop,
        state.to_time,
    ]
    return max(s for s in starts if s is not None), min(e for e in ends if e is not None)


def plan_splits(
    ranges: Sequence[QueueSlice],
    *,
    parallelism: int,
    min_splits: int | None,
    max_splits: int,
    whole_queues: bool = False,
) -> list[LiveSplit]:
    """Divide ranges into splits of equal size: parts of a queue, queues, or several small ones."""
    total = sum(part.messages for part in ranges)
    if total == 0:
        return []
    count = max(-(-total // _SPLIT_MESSAGES), min_splits or 1)
    balanced = -(-count // parallelism) * parallelism
    if total // balanced >= _MIN_BALANCED_MESSAGES:
        count = balanced
    target = max(-(-total // min(count, max_splits)), 1)
    return list(_filled(ranges, target, whole_queues=whole_queues))


def _filled(
    ranges: Sequence[QueueSlice], target: int, *, whole_queues: bool
) -> Iterator[LiveSplit]:
    """Yield splits of ``target`` messages, filled one after the other."""
    parts: list[QueueSlice] = []
    room = target
    for whole in ranges:
        left = whole
        while left.messages > 0:
            taken = left.messages if whole_queues else min(left.messages, room)
            parts.append(left._replace(end=left.start + taken))
            left = left._replace(start=left.start + taken)
            room -= taken
            if room <= 0:
                yield LiveSplit(tuple(parts))
                parts, room = [], target
    if parts:
        yield LiveSplit(tuple(parts))
