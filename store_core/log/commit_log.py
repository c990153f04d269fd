# SPDX-License-Identifier: Apache-2.0
"""The commit log: its segments, and its records by physical offset, one or a range at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Callable, Protocol

import numpy as np

from store_core.errors import StoreConfigError, StoreError
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_list import Segment, SegmentList, list_segments
from store_core.files.store_directory import StoreDirectory
from store_core.layout import COMMIT_LOG_DIR, DLEDGER_ENTRY
from store_core.log.log_scan import (
    BatchSizer,
    Gap,
    SegmentRecords,
    lost_segments,
    scan_slice,
    slice_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.byte_source import ByteSource
    from store_core.log.log_scan import LogPart

    Bytes = npt.NDArray[np.uint8]
    Int64s = npt.NDArray[np.int64]
    TimeTest = Callable[[int], bool]

_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 32 << 20
_KNOWN_ROWS = 1 << 14
_STOP_BYTES = 64 << 10
"""Bisection inside a segment ends here: reading that much costs less than another probe."""
_PROBE_BYTES = 8 << 20
"""A probe gives up here: a blank record can fill a segment, and the proof needs no answer."""
_NEAREST_BYTES, _FARTHEST_BYTES, _STEP = 1 << 6, 4 << 30, 17 / 16
DEFAULT_SEGMENT_BYTES = 1 << 30
_OPEN_SEGMENTS = 16
_RECORD_GUESS_BYTES = 1 << 12
MULTI_PATH_SPLITTER = ","
SEGMENT_SIZE_OPTION = "mappedFileSizeCommitLog"


class LogSegments(Protocol):
    """The list of segments, as far as reading needs it (see ``SegmentList``)."""

    file_size: int

    def find(self, offset: int) -> Segment | None:
        """Return the segment whose nominal range contains ``offset``."""

    def __iter__(self) -> Iterator[Segment]:
        """Iterate over all segments, oldest first."""


class ReadableLog(ABC):
    """Segments of fixed size that together are one endless file; not safe for several threads."""

    segments: LogSegments
    uri: str

    @property
    @abstractmethod
    def min_offset(self) -> int:
        """Offset of the first segment; -1 if there is none (as in RocketMQ)."""

    @abstractmethod
    def source(self, segment: Segment) -> ByteSource:
        """Return the opened segment; the log closes it."""

    @abstractmethod
    def close(self) -> None:
        """Release all segments."""

    def fetch_ahead(self, commit_log_offsets: Iterable[int]) -> None:  # noqa: B027 (a hint)
        """Prepare for reading the records at these offsets, if that takes requests."""

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
        """Return the store time (ms) of the record that starts there; None if none does."""
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return None
        records = self.records(segment, end_offset)
        position = commit_log_offset - segment.from_offset
        return records.store_timestamp(position) if records.is_record(position) else None

    def frames_at(
        self, segment: Segment, commit_log_offsets: npt.NDArray[np.int64], end_offset: int
    ) -> RecordFrames:
        """Return frames at ascending offsets of one segment; only rows that are records are ok.

        Any offsets in the segment are allowed. Of a remote segment only the records, and the bytes
        between close ones, are read.
        """
        records = self.records(segment, end_offset)
        return records.frames_at(commit_log_offsets - segment.from_offset)

    def first_store_timestamp(self, segment: Segment, end_offset: int) -> int | None:
        """Return the store time of a segment's first record; None if none starts at its head."""
        return self.store_timestamp_at(segment.from_offset + segment.header_bytes, end_offset)

    def next_record(
        self, commit_log_offset: int, end_offset: int, stop_offset: int | None = None
    ) -> int:
        """Return the first record that starts in ``[commit_log_offset, stop_offset)``; -1 if none.

        The search stays within one segment.
        """
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return -1
        base = segment.from_offset
        stop = None if stop_offset is None else stop_offset - base
        found = self.records(segment, end_offset).find(commit_log_offset - base, stop)
        return found + base if found >= 0 else -1


# Store times grow along the log except for clock steps. The caller gives the largest step back that
# may have happened (the slack). Then one record proves something of all others: before a record of
# time t no time is later than t + slack, and from it on none is earlier than t - slack. So any
# record whose time plus slack is below the range excludes everything before it, wherever it is;
# bisection only picks a good one.
#
# One record can be damaged without a sign: no checksum covers a store time. So a record counts only
# if the record after it agrees: one of the two is right, whichever is damaged, and what they prove
# differs only by the first of them.
def narrow_by_time(
    log: ReadableLog, end_offset: int, begin_ms: int | None, stop_ms: int | None, slack_ms: int
) -> tuple[int, int]:
    """Return a range ``[start, stop)`` of the log with all records of ``[begin_ms, stop_ms)``.

    Correct for clock steps up to ``slack_ms``, even if single store times are damaged; opens
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


def last_begun_by(log: ReadableLog, end_offset: int, time_ms: int) -> int:
    """Return the start of the last segment that was begun by a time; of the first if none was.

    If `_first_later` finds a record of a later time before it, an earlier segment is returned, that
    begins at or before this record: the clock may have been set back since.
    """
    segments = [s for s in log.segments if s.from_offset < end_offset]
    first = segments[0].from_offset if segments else 0
    begun = (s.from_offset for s in reversed(segments) if _begins_by(log, s, end_offset, time_ms))
    start = next(begun, first)
    later = _first_later(log, start, time_ms)
    return start if later is None else next((at for at in begun if at <= later), first)


def _first_later(log: ReadableLog, offset: int, time_ms: int) -> int | None:
    """Return a record before an offset with a later time: the first one that a probe meets.

    Probes go ever farther back, each a sixteenth more. Unflushed data of a broker is not much older
    than its last flush; if the clock was set back within it, the records later than the flush are a
    good part of those written after it, whatever the rate of writes.
    """
    farthest = min(offset - max(log.min_offset, 0), _FARTHEST_BYTES)
    steps = int(math.log(max(farthest / _NEAREST_BYTES, 1), _STEP)) + 1
    distances = {int(_NEAREST_BYTES * _STEP**step) for step in range(steps)}
    places = sorted(offset - distance for distance in distances if distance <= farthest)
    log.fetch_ahead(places)
    for segment in log.segments:
        base, stop = segment.from_offset, segment.from_offset + log.segments.file_size
        inside = [place - base for place in places if base <= place < stop]
        if not inside:
            continue
        with suppress(StoreError):  # code that needs these records raises it
            records = log.records(segment, offset)
            for position in inside:
                at = records.find(position, position + _PROBE_BYTES)
                if at >= 0 and records.store_timestamp(at) > time_ms:
                    return base + at
    return None


def _begins_by(log: ReadableLog, segment: Segment, end_offset: int, time_ms: int) -> bool:
    """Return whether a segment was begun by a time, according to its first two records."""
    time = log.first_store_timestamp(segment, end_offset)
    if time is None or time > time_ms:
        return False
    first = segment.from_offset + segment.header_bytes
    return _next_agrees(log, first, end_offset, lambda t: t <= time_ms)


def _turning_point(
    log: ReadableLog, segments: list[Segment], end_offset: int, test: TimeTest, *, is_before: bool
) -> int | None:
    """Return the start of a record that passes, as does the next, close to where that changes.

    ``is_before``: records before the change pass, so the last one is best, else those after it.
    None if no record passes together with the next one.
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
    """Yield the records that pass among those that bisection probes, each closer to the change."""
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
    """Return whether the record after one passes, be it the first of the next segment."""
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


def commit_log_directories(directory: StoreDirectory, config: MessageStoreConfig) -> list[str]:
    """Return the commit log directories: ``storePathCommitLog`` or ``commitlog`` below the root.

    Several are separated by commas; relative ones are below the root. Source: RocketMQ
    ``MultiPathMappedFileQueue`` (5.3.3).
    """
    listed = [
        config.store_path_commit_log or COMMIT_LOG_DIR,
        config.read_only_commit_log_store_paths,
    ]
    names = [name.strip() for paths in listed for name in (paths or "").split(MULTI_PATH_SPLITTER)]
    return list(dict.fromkeys(directory.resolve(name) for name in names if name))


class CommitLog(ReadableLog):
    """Segments of fixed size that together are one endless file, for reading only."""

    def __init__(
        self,
        directory: StoreDirectory,
        config: MessageStoreConfig,
        dledger: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.uri = directory.uri
        paths = [*commit_log_directories(directory, config), *dledger]

        def forget() -> None:
            for path in paths:
                directory.forget(path)

        found = list_segments(
            lambda: [entry for path in paths for entry in directory.list(path)],
            file_size=config.mapped_file_size_commit_log,
            option=SEGMENT_SIZE_OPTION,
            forget=forget,
        )
        self.segments: SegmentList = _with_headers(found, dledger) if dledger else found
        of_dledger = (s.from_offset for s in self.segments if s.header_bytes)
        self._dledger_from: int | None = next(of_dledger, None)
        self._open: OrderedDict[str, ByteSource] = OrderedDict()

    @property
    def min_offset(self) -> int:
        """Offset of the first segment; -1 if there is none (as in RocketMQ)."""
        return self.segments.min_offset if len(self.segments) else -1

    def header_bytes(
        self, commit_log_offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64] | int:
        """Return the length of the header before the record at each offset; 0 outside DLedger."""
        begin = self._dledger_from
        if begin is None:
            return 0
        return np.where(commit_log_offsets >= begin, DLEDGER_ENTRY.size, 0)

    def source(self, segment: Segment) -> ByteSource:
        """Return the opened segment; the log closes it."""
        source = self._open.pop(segment.path, None) or self.directory.open(segment.path)
        self._open[segment.path] = source
        while len(self._open) > _OPEN_SEGMENTS:
            self._open.popitem(last=False)[1].close()
        return source

    def fetch_ahead(self, commit_log_offsets: Iterable[int]) -> None:
        """Request records of a remote log in parallel."""
        if self.directory.is_local:
            return
        ranges = []
        for offset in commit_log_offsets:
            segment = self.segments.find(offset)
            if segment is not None and offset - segment.from_offset < segment.size:
                ranges.append((segment.path, offset - segment.from_offset, _RECORD_GUESS_BYTES))
        self.directory.fetch_ahead(ranges)

    def twin(self) -> CommitLog:
        """Return a copy with files of its own, for another thread."""
        twin = copy(self)
        twin._open = OrderedDict()
        return twin

    def close(self) -> None:
        """Close all segments."""
        while self._open:
            self._open.popitem()[1].close()


def _with_headers(found: SegmentList, dledger: Sequence[str]) -> SegmentList:
    """Set ``header_bytes`` of the segments in the directories of DLedger."""
    segments = [
        segment._replace(header_bytes=DLEDGER_ENTRY.size)
        if segment.path.rpartition("/")[0] in dledger
        else segment
        for segment in found
    ]
    return SegmentList(segments, found.file_size)


def log_directories(
    directory: StoreDirectory, config: MessageStoreConfig
) -> tuple[list[str], list[str]]:
    """Return the directories of the log that get new files, and those that do not."""
    only, read_only = config.read_only_commit_log_store_paths, []
    if only:
        alone = replace(config, store_path_commit_log=only, read_only_commit_log_store_paths=None)
        read_only = commit_log_directories(directory, alone)
    found = commit_log_directories(directory, config)
    writable = [path for path in found if path not in read_only]
    if not writable:
        raise StoreConfigError(
            "all directories of storePathCommitLog are in readOnlyCommitLogStorePaths: there is "
            "no place for new segments; add a directory to storePathCommitLog"
        )
    return writable, read_only


def open_segments(root: str, config: MessageStoreConfig, log: CommitLog) -> MappedFileQueue:
    """Return the writable segments of a store, not loaded.

    Their size is the configured one, else that of the files, else RocketMQ's default.
    """
    directory = StoreDirectory(root)
    writable, read_only = log_directories(directory, config)
    size = config.mapped_file_size_commit_log or log.segments.file_size or DEFAULT_SEGMENT_BYTES
    return MappedFileQueue(
        writable,
        size,
        option=SEGMENT_SIZE_OPTION,
        read_only_directories=read_only,
    )


def scan_log(
    log: ReadableLog,
    start: int,
    stop: int,
    end_offset: int | None = None,
    *,
    sizer: BatchSizer | None = None,
) -> Iterator[LogPart]:
    """Yield the frames and gaps of the range ``[start, stop)``; lost segments are gaps.

    Parameters
    ----------
    end_offset
        End of the readable log: bytes from there on are not read. If None, ``stop``: a record that
        reaches beyond does not count.
    sizer
        Bounds of a batch of frames; if None, 65,536 records and 32 MiB.
    """
    end_offset = stop if end_offset is None else end_offset
    sizer = sizer or BatchSizer(_BATCH_ROWS, _BATCH_BYTES)
    at, before = start, None
    for segment in log.segments:
        part = slice_of(segment, log.segments.file_size, start, stop, end_offset)
        if part is None:
            continue
        if at < part.start:
            yield lost_segments(at, part.start, before, segment.path)
        yield from scan_slice(log.source(segment), part, sizer)
        at, before = part.stop, part
    if at < stop:
        yield lost_segments(at, stop, before, log.uri)


def scan_frames(
    log: ReadableLog,
    start: int,
    stop: int,
    end_offset: int | None = None,
    *,
    on_gap: Callable[[Gap], object],
    sizer: BatchSizer | None = None,
) -> Iterator[RecordFrames]:
    """Yield the frames of a range (see `scan_log`); gaps go to ``on_gap`` as they come."""
    for part in scan_log(log, start, stop, end_offset, sizer=sizer):
        if isinstance(part, Gap):
            on_gap(part)
        else:
            yield part


def frames_of(log: ReadableLog, starts: npt.NDArray[np.int64]) -> Iterator[RecordFrames]:
    """Yield the frames of records at known offsets (ascending)."""
    size = log.segments.file_size
    for segment in log.segments:
        end = segment.from_offset + size
        low, high = np.searchsorted(starts, (segment.from_offset, end)).tolist()
        for first in range(low, high, _KNOWN_ROWS):
            yield log.frames_at(segment, starts[first : min(first + _KNOWN_ROWS, high)], end)
