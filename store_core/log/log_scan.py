"""Read ranges of the commit log in order: batches of frames, and the gaps that damage left.

Where a range begins and ends need not be the start of a record: a range ``[start, stop)`` holds the
records from the first that starts at or after ``start`` up to the first that starts at or after
``stop``, and the gaps between them. So ranges that follow each other give every record, and every
gap, once, wherever the cuts lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.codec.record_walk import walk_records
from store_core.log.segment_records import SegmentRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.codec.record_walk import Walk
    from store_core.files.byte_source import ByteSource
    from store_core.log.segment_records import Window

_FIRST_ROWS = 256
_GROWTH = 8


class Gap(NamedTuple):
    """Bytes of the log in which no record could be read.

    ``position`` is that of the first lost byte in the file; ``bytes_lost`` reaches to the next
    readable record, or to the end of what the log holds.
    """

    commit_log_offset: int
    bytes_lost: int
    path: str
    position: int
    reason: str


class LogSlice(NamedTuple):
    """A range of one segment; plain values, so that it travels between processes.

    Attributes
    ----------
    path, from_offset, file_size
        The segment; ``file_size`` is the nominal one.
    start, stop
        Physical offsets of the range.
    end_offset
        End of the readable log; bytes behind it are not data.
    missing_bytes
        Bytes between the end of this segment and the next one that is there: lost segments.
    """

    path: str
    from_offset: int
    file_size: int
    start: int
    stop: int
    end_offset: int
    missing_bytes: int = 0


LogPart = Union[RecordFrames, Gap]


class BatchSizer:
    """How many records the next batch may have: few at first, so that ``limit`` answers at once.

    Parameters
    ----------
    max_rows, max_bytes
        Bounds of a batch; a single record may be larger than ``max_bytes``.
    """

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._max_rows = max_rows
        self._rows = min(_FIRST_ROWS, max_rows)

    def next_rows(self) -> int:
        """Return the bound for the next batch and raise that of the following one."""
        rows = self._rows
        self._rows = min(rows * _GROWTH, self._max_rows)
        return rows


def scan_slice(source: ByteSource, part: LogSlice, sizer: BatchSizer) -> Iterator[LogPart]:
    """Yield the frames and gaps of a slice in order; every row of the frames is a valid frame.

    A local file is one view. Of a remote one windows of 8 MiB are read, each byte once, up to the
    end of the slice's last record; frames keep their window alive.
    """
    records = SegmentRecords(source, part.from_offset, part.file_size, part.end_offset)
    log_end = max(min(part.file_size, part.end_offset - part.from_offset), 0)
    at = _boundary(records, part.start - part.from_offset, log_end)
    stop = _boundary(records, part.stop - part.from_offset, log_end)
    while at < stop:
        window = records.window(at, stop)
        walk = _walk(window, at, stop, sizer)
        frames = RecordFrames(window.data, part.from_offset + window.start, walk.starts)
        good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
        if good:
            yield frames if good == len(frames) else frames.take(np.arange(good))
            seen, at = at, window.start + (walk.stop if good == len(frames) else walk.starts[good])
            at = int(at)
            source.forget(seen, at - seen)
            continue  # what failed behind good records fails again, now as the first
        if walk.blank and not len(frames) and _closes_segment(records, at):
            break  # the blank record lies here, not behind a damaged one
        after = _first_record(records, at + 1, log_end)
        yield _gap(records, part, at, after)
        at = after
    segment_end = part.from_offset + part.file_size
    if part.missing_bytes and part.start < segment_end <= part.stop:
        yield _missing(part, segment_end)


def _walk(window: Window, at: int, stop: int, sizer: BatchSizer) -> Walk:
    start = window.start
    return walk_records(window.data, at - start, stop - start, sizer.next_rows(), sizer.max_bytes)


def _boundary(records: SegmentRecords, position: int, log_end: int) -> int:
    """Return the position of the first record at or after one (see the module's text)."""
    if position <= 0:
        return 0
    return log_end if position >= log_end else _first_record(records, position, log_end)


def _first_record(records: SegmentRecords, position: int, log_end: int) -> int:
    found = records.find(position)
    return log_end if found < 0 else found


def _closes_segment(records: SegmentRecords, at: int) -> bool:
    """Tell whether a blank record ends the segment: by its size, or as nothing follows it."""
    size = int.from_bytes(records.bytes_at(at, 4).tobytes(), "big", signed=True)
    return size == records.file_size - at or records.find(at + 1) < 0


def _gap(records: SegmentRecords, part: LogSlice, at: int, after: int) -> Gap:
    if at >= records.length:
        reason = f"the file ends here; {part.file_size} bytes were expected"
    elif records.is_zero(at, after):
        reason = "no valid record: the bytes are zero"
    else:
        head = records.bytes_at(at, 8).tobytes().hex(" ", 4)
        reason = f"no valid record: the bytes are {head}"
    return Gap(part.from_offset + at, after - at, part.path, at, reason)


def _missing(part: LogSlice, segment_end: int) -> Gap:
    reason = "segments are missing behind this file"
    return Gap(segment_end, part.missing_bytes, part.path, part.file_size, reason)
