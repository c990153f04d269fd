"""Walk the log for recovery: where it ends, and what readable records lie after that place.

Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.codec.record_walk import walk_records
from store_core.log.log_scan import scan_frames, skip_gap
from store_core.log.record_checks import first_invalid

if TYPE_CHECKING:
    from collections.abc import Generator

    from store_core.files.segment_list import Segment
    from store_core.log.readable_log import ReadableLog

_WALK_ROWS = 1 << 14  # arrays of more rows are fresh memory every time
_WALK_BYTES = 32 << 20


class LogWalk:
    """Validates the records from an offset on, up to the first that is none.

    Parameters
    ----------
    flushed_ms
        Store time up to which the log is known to be on the disk; 0: not known.

    Attributes
    ----------
    last_start, last_timestamp
        The last good record: its start (-1: none) and its store time, ms.
    """

    def __init__(
        self, log: ReadableLog, start_offset: int, *, check_crc: bool = True, flushed_ms: int = 0
    ) -> None:
        self.end_offset = self.flushed_end = start_offset
        self._flushed_ms, self._is_flushed = flushed_ms, True
        self.last_start, self.last_timestamp, self.records = -1, 0, 0
        self._log, self._check_crc = log, check_crc

    def frames(self) -> Generator[RecordFrames, None, None]:
        """Yield good records, in order. Their bytes live as long as they are referred to."""
        start, size = self.end_offset, self._log.segments.file_size
        segments = [s for s in self._log.segments if s.from_offset + size > start]
        for segment in segments:
            self.end_offset = max(segment.from_offset, start)
            yield from self._of_segment(segment, self.end_offset - segment.from_offset)
            if not self._is_blank(segment):
                return
        # The blank record of the last segment is written again by the next append.

    def _of_segment(self, segment: Segment, at: int) -> Generator[RecordFrames, None, None]:
        records = self._log.records(segment, segment.from_offset + self._log.segments.file_size)
        source = self._log.source(segment)
        while at < records.length:
            window = records.window(at, records.length)
            start = at - window.start
            walk = walk_records(window.data, start, len(window.data), _WALK_ROWS, _WALK_BYTES)
            frames = RecordFrames(window.data, segment.from_offset + window.start, walk.starts)
            good = first_invalid(frames, check_crc=self._check_crc)
            if good == 0:
                return
            stop = walk.stop if good == len(frames) else int(walk.starts[good])
            frames = frames if good == len(frames) else frames.take(np.arange(good))
            self.records += good
            self.last_start = int(frames.column("commit_log_offset")[-1])
            self._note_times(frames)
            seen, at = at, window.start + stop
            self.end_offset = segment.from_offset + at
            yield frames
            source.forget(seen, at - seen)

    def _note_times(self, frames: RecordFrames) -> None:
        times = frames.column("store_timestamp")
        self.last_timestamp = int(times[-1])
        if self._is_flushed:
            late = np.append(times >= self._flushed_ms, True)
            count = int(np.argmax(late))
            if count:
                last = frames.take(np.array([count - 1]))
                begin = int(last.column("commit_log_offset")[0])
                self.flushed_end = begin + int(last.column("total_size")[0])
            self._is_flushed = count == len(frames)

    def _is_blank(self, segment: Segment) -> bool:
        """Return whether a blank record closes the segment at the end so far."""
        records = self._log.records(segment, segment.from_offset + self._log.segments.file_size)
        return records.closes_at(self.end_offset - segment.from_offset)


class Behind(NamedTuple):
    """Readable records after the place where a walk ended.

    Attributes
    ----------
    first_offset, first_timestamp
        The first one: its start (-1: none) and its store time, ms.
    oldest_timestamp
        Least store time of all, ms.
    """

    records: int = 0
    first_offset: int = -1
    first_timestamp: int = 0
    oldest_timestamp: int = 0
    in_later_segment: bool = False


def records_behind(log: ReadableLog, end_offset: int) -> Behind:
    """Count the readable records after an offset; reads all that lies there, but no holes."""
    size = log.segments.file_size
    segments = list(log.segments)
    log_end = segments[-1].from_offset + size if segments else 0
    count, first, first_ms, oldest, later = 0, -1, 0, 0, False
    for segment in segments:
        begin = max(segment.from_offset, end_offset + 1)
        if begin >= segment.from_offset + size:
            continue
        found = log.next_record(begin, log_end)
        if found < 0:
            continue
        for frames in scan_frames(log, found, segment.from_offset + size, on_gap=skip_gap):
            times = frames.column("store_timestamp")
            if first < 0:
                first, first_ms = int(frames.column("commit_log_offset")[0]), int(times[0])
                oldest = first_ms
            oldest = min(oldest, int(times.min()))
            later |= segment.from_offset > end_offset
            count += len(frames)
    return Behind(count, first, first_ms, oldest, later)
