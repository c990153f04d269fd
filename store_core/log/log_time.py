"""Narrow a log to a range of store times, reading a few records only.

Store times grow along the log but for clock steps. The caller gives the largest step back that may
have happened (the slack). Then one record proves something of all others: before a record of time t
no time is later than t + slack, and from it on none is earlier than t - slack. So any record whose
time plus slack lies below the range excludes everything before it, wherever it was found; bisection
only makes the find a good one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from store_core.files.segment_list import Segment
    from store_core.log.commit_log import CommitLog

_STOP_BYTES = 64 << 10
"""Bisection inside a segment ends here: reading that much costs less than another probe."""

_PROBE_BYTES = 8 << 20
"""A probe gives up here: a blank record can fill a segment, and no answer is needed for proof."""


def narrow_by_time(
    log: CommitLog, end_offset: int, begin_ms: int | None, stop_ms: int | None, slack_ms: int
) -> tuple[int, int]:
    """Return ``[start, stop)`` of the log that holds all records of ``[begin_ms, stop_ms)``.

    Exact for clock steps up to ``slack_ms``; opens O(log n) segments.
    """
    segments = [s for s in log.segments if s.from_offset < end_offset]
    start, stop = max(log.min_offset, 0), end_offset
    if begin_ms is not None:
        below = begin_ms - slack_ms
        start = max(start, _last_passing(log, segments, end_offset, lambda t: t < below))
    if stop_ms is not None:
        above = stop_ms + slack_ms
        stop = min(stop, _first_passing(log, segments, end_offset, lambda t: t >= above))
    return start, max(start, stop)


def _last_passing(
    log: CommitLog, segments: list[Segment], end_offset: int, test: Callable[[int], bool]
) -> int:
    """Return the start of a late record that passes; -1 when none was found."""
    low, high, best = 0, len(segments), -1
    while low < high:
        middle = (low + high) // 2
        time = log.first_store_timestamp(segments[middle], end_offset)
        if time is not None and test(time):
            best, low = middle, middle + 1
        else:
            high = middle
    if best < 0:
        return -1
    segment = segments[best]
    found, low, high = segment.from_offset, segment.from_offset, _end(log, segment, end_offset)
    while high - low > _STOP_BYTES:
        middle = (low + high) // 2
        at, time = _probe(log, middle, high, end_offset)
        if time is not None and test(time):
            found, low = at, max(at, middle)
        else:
            high = middle
    return found


def _first_passing(
    log: CommitLog, segments: list[Segment], end_offset: int, test: Callable[[int], bool]
) -> int:
    """Return the start of an early record that passes; ``end_offset`` when none was found."""
    low, high = 0, len(segments)
    best = end_offset
    while low < high:
        middle = (low + high) // 2
        time = log.first_store_timestamp(segments[middle], end_offset)
        if time is not None and test(time):
            best, high = segments[middle].from_offset, middle
        else:
            low = middle + 1
    if high == 0:
        return best
    segment = segments[high - 1]
    found, low, high = best, segment.from_offset, _end(log, segment, end_offset)
    while high - low > _STOP_BYTES:
        middle = (low + high) // 2
        at, time = _probe(log, middle, high, end_offset)
        if time is not None and test(time):
            found, high = at, middle
        else:
            low = middle if time is None else max(at, middle)
    return found


def _end(log: CommitLog, segment: Segment, end_offset: int) -> int:
    return min(segment.from_offset + log.segments.file_size, end_offset)


def _probe(log: CommitLog, offset: int, stop: int, end_offset: int) -> tuple[int, int | None]:
    """Return start and time of the first record in ``[offset, stop)`` of one segment."""
    at = log.next_record(offset, end_offset, min(stop, offset + _PROBE_BYTES))
    if at < 0:
        return offset, None
    return at, log.store_timestamp_at(at, end_offset)
