"""Records of a commit log by their physical offsets, whoever holds its segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Callable, Protocol

import numpy as np

from store_core.log.segment_records import SegmentRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.files.byte_source import ByteSource
    from store_core.files.segment_list import Segment

    TimeTest = Callable[[int], bool]

_STOP_BYTES = 64 << 10
"""Bisection inside a segment ends here: reading that much costs less than another probe."""
_PROBE_BYTES = 8 << 20
"""A probe gives up here: a blank record can fill a segment, and no answer is needed for proof."""


class LogSegments(Protocol):
    """What reading needs of the list of segments (see ``SegmentList``)."""

    file_size: int

    def find(self, offset: int) -> Segment | None:
        """Return the segment whose nominal range holds ``offset``."""

    def __iter__(self) -> Iterator[Segment]:
        """Iterate over all segments, oldest first."""


class ReadableLog(ABC):
    """Segments of fixed size that together are one endless file; not safe for several threads."""

    segments: LogSegments
    uri: str

    @property
    @abstractmethod
    def min_offset(self) -> int:
        """First byte of the first segment; -1 when there is none (as RocketMQ says)."""

    @abstractmethod
    def source(self, segment: Segment) -> ByteSource:
        """Return the opened segment; the log closes it."""

    @abstractmethod
    def close(self) -> None:
        """Give all segments back."""

    def fetch_ahead(self, commit_log_offsets: Iterable[int]) -> None:  # noqa: B027 (a hint)
        """Prepare for reading the records that start there, if that takes requests."""

    def records(self, segment: Segment, end_offset: int) -> SegmentRecords:
        """Return access to the records of a segment that end before ``end_offset``."""
        source, size = self.source(segment), self.segments.file_size
        return SegmentRecords(source, segment.from_offset, size, end_offset, segment.header_bytes)

    def is_record(self, commit_log_offset: int, end_offset: int) -> bool:
        """Return whether a whole valid record starts there and ends before ``end_offset``."""
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return False
        records = self.records(segment, end_offset)
        return records.is_record(commit_log_offset - segment.from_offset)

    def store_timestamp_at(self, commit_log_offset: int, end_offset: int) -> int | None:
        """Return the store time (ms) of the record that starts there; None when none does."""
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return None
        records = self.records(segment, end_offset)
        position = commit_log_offset - segment.from_offset
        return records.store_timestamp(position) if records.is_record(position) else None

    def frames_at(
        self, segment: Segment, commit_log_offsets: npt.NDArray[np.int64], end_offset: int
    ) -> RecordFrames:
        """Return frames at ascending offsets of one segment; rows that are no records are not ok.

        The offsets may be any that lie in the segment. Of a remote one only the records and what
        lies between close ones are read.
        """
        records = self.records(segment, end_offset)
        return records.frames_at(commit_log_offsets - segment.from_offset)

    def first_store_timestamp(self, segment: Segment, end_offset: int) -> int | None:
        """Return the store time of a segment's first record; None when none starts at its head."""
        return self.store_timestamp_at(segment.from_offset + segment.header_bytes, end_offset)

    def next_record(
        self, commit_log_offset: int, end_offset: int, stop_offset: int | None = None
    ) -> int:
        """Return the first record that starts in ``[commit_log_offset, stop_offset)``; -1 if none.

        It is looked for within one segment.
        """
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return -1
        base = segment.from_offset
        stop = None if stop_offset is None else stop_offset - base
        found = self.records(segment, end_offset).find(commit_log_offset - base, stop)
        return found + base if found >= 0 else -1


# Store times grow along the log but for clock steps. The caller gives the largest step back that
# may have happened (the slack). Then one record proves something of all others: before a record of
# time t no time is later than t + slack, and from it on none is earlier than t - slack. So any
# record whose time plus slack lies below the range excludes everything before it, wherever it was
# found; bisection only makes the find a good one.
#
# One record can be damaged where nothing shows it: no checksum covers a store time. So a record
# counts only when the record after it says the same: one of the two is right, whichever is damaged,
# and nothing but the first of them lies between what the one proves and what the other does.
def narrow_by_time(
    log: ReadableLog, end_offset: int, begin_ms: int | None, stop_ms: int | None, slack_ms: int
) -> tuple[int, int]:
    """Return ``[start, stop)`` of the log that holds all records of ``[begin_ms, stop_ms)``.

    Exact for clock steps up to ``slack_ms``, whichever single store times are damaged; opens
    O(log n) segments.
    """
    segments = [s for s in log.segments if s.from_offset < end_offset]
    start, stop = max(log.min_offset, 0), end_offset
    if begin_ms is not None:
        below = begin_ms - slack_ms
        late = _turning_point(log, segments, end_offset, lambda t: t < below, is_before=True)
        start = start if late is None else max(start, late)
    if stop_ms is not None:
        above = stop_ms + slack_ms
        early = _turning_point(log, segments, end_offset, lambda t: t >= above, is_before=False)
        stop = stop if early is None else min(stop, early)
    return start, max(start, stop)


def begins_by(log: ReadableLog, segment: Segment, end_offset: int, time_ms: int) -> bool:
    """Return whether a segment was begun by a time, as its first two records say."""
    time = log.first_store_timestamp(segment, end_offset)
    if time is None or time > time_ms:
        return False
    first = segment.from_offset + segment.header_bytes
    return _next_agrees(log, first, end_offset, lambda t: t <= time_ms)


def _turning_point(
    log: ReadableLog, segments: list[Segment], end_offset: int, test: TimeTest, *, is_before: bool
) -> int | None:
    """Return the start of a record that passes, as does the next, close to where passing turns.

    ``is_before``: what passes lies before the turn, so the latest is looked for, else after it.
    None: no record passes that the next one agrees with.
    """
    passing = []
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        time = log.first_store_timestamp(segments[middle], end_offset)
        passes = time is not None and test(time)
        if passes:
            passing.append(segments[middle].from_offset + segments[middle].header_bytes)
        if passes == is_before:
            low = middle + 1
        else:
            high = middle
    if low > 0:
        passing += _turns_in_segment(log, segments[low - 1], end_offset, test, is_before=is_before)
    # Each is better than the one before.
    agreed = (at for at in reversed(passing) if _next_agrees(log, at, end_offset, test))
    return next(agreed, None)


def _turns_in_segment(
    log: ReadableLog, segment: Segment, end_offset: int, test: TimeTest, *, is_before: bool
) -> Iterator[int]:
    """Give the records that pass of those that bisection meets, each closer to the turn."""
    low = segment.from_offset
    high = min(low + log.segments.file_size, end_offset)
    while high - low > _STOP_BYTES:
        middle = (low + high) // 2
        at, time = _probe(log, middle, high, end_offset)
        passes = time is not None and test(time)
        if passes:
            yield at
        if passes == is_before:
            low = max(at, middle)
        else:
            high = middle


def _next_agrees(log: ReadableLog, commit_log_offset: int, end_offset: int, test: TimeTest) -> bool:
    """Return whether the record behind one passes: the next one, or the next segment's first."""
    segment = log.segments.find(commit_log_offset)
    if segment is None:
        return False
    frames = log.frames_at(segment, np.array([commit_log_offset], np.int64), end_offset)
    after = commit_log_offset + int(frames.column("total_size")[0]) + segment.header_bytes
    time = log.store_timestamp_at(after, end_offset) if frames.ok[0] else None
    if time is None:
        following = log.segments.find(segment.from_offset + log.segments.file_size)
        time = log.first_store_timestamp(following, end_offset) if following else None
    return time is not None and test(time)


def _probe(log: ReadableLog, offset: int, stop: int, end_offset: int) -> tuple[int, int | None]:
    """Return start and time of the first record in ``[offset, stop)`` of one segment."""
    at = log.next_record(offset, end_offset, min(stop, offset + _PROBE_BYTES))
    if at < 0:
        return offset, None
    return at, log.store_timestamp_at(at, end_offset)
