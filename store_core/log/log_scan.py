"""Read ranges of the commit log in order: batches of frames, and the gaps that damage left.

Where a range begins and ends need not be the start of a record: a range ``[start, stop)`` holds the
records from the first that starts at or after ``start`` up to the first that starts at or after
``stop``, and the gaps between them. So ranges that follow each other give every record, and every
gap, once, wherever the cuts lie.

`scan_log` reads any range of a log that this process has open; whoever wants no gaps calls
`scan_frames`. `scan_slice` reads what `slice_of` cut from one segment, perhaps in another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np

from store_core.codec.dledger_entries import entry_headers, headers_ok
from store_core.codec.record_frames import RecordFrames
from store_core.errors import CorruptRecordError
from store_core.log.segment_records import SegmentRecords

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Callable

    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource
    from store_core.files.segment_list import Segment
    from store_core.log.readable_log import ReadableLog

DAMAGED_HEADER = "the header of a DLedger entry says something else than its record"
_FIRST_ROWS = 256
_GROWTH = 8
_BATCH_ROWS = 1 << 16
_KNOWN_ROWS = 1 << 14
_BATCH_BYTES = 32 << 20


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
    end_offset
        End of the readable log; bytes after it are not data.
    header_bytes
        Of the header before each record: of a DLedger entry, or 0.
    """

    path: str
    from_offset: int
    file_size: int
    start: int
    stop: int
    end_offset: int
    missing_bytes: int = 0
    starts_exactly: bool = False
    header_bytes: int = 0


LogPart = Union[RecordFrames, Gap]


class BatchSizer:
    """How many records the next batch may have: few at first, so that ``limit`` answers at once."""

    def __init__(self, max_rows: int, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._max_rows = max_rows
        self._rows = min(_FIRST_ROWS, max_rows)

    def next_rows(self) -> int:
        """Return the bound for the next batch and raise that of the following one."""
        rows = self._rows
        self._rows = min(rows * _GROWTH, self._max_rows)
        return rows


def slice_of(
    segment: Segment, file_size: int, start: int, stop: int, end_offset: int
) -> LogSlice | None:
    """Return the part of a range that lies in a segment; None when nothing does."""
    begin, end = segment.from_offset, segment.from_offset + file_size
    if end <= start or begin >= min(stop, end_offset):
        return None
    return LogSlice(
        path=segment.path,
        from_offset=begin,
        file_size=file_size,
        start=max(start, begin),
        stop=min(stop, end),
        end_offset=end_offset,
        header_bytes=segment.header_bytes,
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
        End of the readable log: what lies there or after is not looked at. None: ``stop``, so
        that a record which reaches beyond is none.
    sizer
        Bounds of a batch of frames; None: 65,536 records and 32 MiB.
    """
    end_offset = stop if end_offset is None else end_offset
    sizer = sizer or BatchSizer(_BATCH_ROWS, _BATCH_BYTES)
    at, before = start, None
    for segment in log.segments:
        part = slice_of(segment, log.segments.file_size, start, stop, end_offset)
        if part is None:
            continue
        if at < part.start:
            yield _lost_segments(at, part.start, before, segment.path)
        yield from scan_slice(log.source(segment), part, sizer)
        at, before = part.stop, part
    if at < stop:
        yield _lost_segments(at, stop, before, log.uri)


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


def skip_gap(gap: Gap) -> None:
    """Leave a gap out: for reading what is readable."""


def refuse_gap(gap: Gap) -> None:
    """Raise `CorruptRecordError`: for ranges of which everything has to be read."""
    raise CorruptRecordError(gap.reason, gap.path, gap.position)


def frames_of(log: ReadableLog, starts: npt.NDArray[np.int64]) -> Iterator[RecordFrames]:
    """Yield the frames of records of which it is known where they start (ascending)."""
    size = log.segments.file_size
    for segment in log.segments:
        end = segment.from_offset + size
        low, high = np.searchsorted(starts, (segment.from_offset, end)).tolist()
        for first in range(low, high, _KNOWN_ROWS):
            yield log.frames_at(segment, starts[first : min(first + _KNOWN_ROWS, high)], end)


def scan_slice(source: ByteSource, part: LogSlice, sizer: BatchSizer) -> Iterator[LogPart]:
    """Yield the frames and gaps of a slice in order; every row of the frames is a valid frame.

    A local file is one view. Of a remote one windows of 8 MiB are read, each byte once, up to the
    end of the slice's last record; frames keep their window alive.
    """
    header = part.header_bytes
    records = SegmentRecords(source, part.from_offset, part.file_size, part.end_offset, header)
    log_end = max(min(part.file_size, part.end_offset - part.from_offset), 0)
    at = part.start - part.from_offset
    source.read_ahead(at, min(part.stop - part.from_offset, log_end))
    if not part.starts_exactly or (header and records.is_record(at)):
        at = _boundary(records, at, log_end)
    stop = _boundary(records, part.stop - part.from_offset, log_end)
    while at < stop:
        window = records.window(at, stop)
        walk = records.walk(window, at, stop, sizer.next_rows(), sizer.max_bytes)
        frames = RecordFrames(window.data, part.from_offset + window.start, walk.starts)
        good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
        if good:
            kept = frames if good == len(frames) else frames.take(np.arange(good))
            if header:
                yield from _with_headers(kept, part)
            else:
                yield kept
            after = walk.stop if good == len(frames) else int(walk.starts[good]) - header
            seen, at = at, window.start + after
            source.forget(seen, at - seen)
            continue  # what failed after good records fails again, now as the first
        if walk.blank and not len(frames) and records.closes_at(at):
            break  # the blank record lies here, not behind a damaged one
        after = _first_record(records, at + header + 1, log_end)
        yield _gap(records, part, at, after)
        at = after
    segment_end = part.from_offset + part.file_size
    if part.missing_bytes and part.start < segment_end <= part.stop:
        yield _lost_segments(segment_end, segment_end + part.missing_bytes, part, part.path)


def _with_headers(frames: RecordFrames, part: LogSlice) -> Iterator[LogPart]:
    """Yield records of entries; a damaged header is a gap before its record, which says it all."""
    bad = np.flatnonzero(~headers_ok(entry_headers(frames), frames)).tolist()
    low = 0
    for row in bad:
        if row > low:
            yield frames.take(np.arange(low, row))
        offset = int(frames.column("commit_log_offset")[row]) - part.header_bytes
        position = offset - part.from_offset
        yield Gap(offset, part.header_bytes, part.path, position, DAMAGED_HEADER)
        low = row
    yield frames.take(np.arange(low, len(frames))) if bad else frames


def _boundary(records: SegmentRecords, position: int, log_end: int) -> int:
    """Return the position of the first record at or after one (see the module's text)."""
    if position <= 0:
        return 0
    return log_end if position >= log_end else _first_record(records, position, log_end)


def _first_record(records: SegmentRecords, position: int, log_end: int) -> int:
    """Return the place of the first record at or after one, or of its header if it has one."""
    found = records.find(position)
    return log_end if found < 0 else found - records.header_bytes


def _gap(records: SegmentRecords, part: LogSlice, at: int, after: int) -> Gap:
    if at >= records.length:
        reason = f"the file ends here; {part.file_size} bytes were expected"
    elif records.is_zero(at, after):
        reason = "no valid record: the bytes are zero"
    else:
        head = records.bytes_at(at, 8).tobytes().hex(" ", 4)
        reason = f"no valid record: the bytes are {head}"
    return Gap(part.from_offset + at, after - at, part.path, at, reason)


def _lost_segments(start: int, stop: int, before: LogSlice | None, place: str) -> Gap:
    if before is None:
        text = f"the segments that held offsets {start} to {stop} of the log are missing"
        return Gap(start, stop - start, place, 0, text)
    reason = "segments are missing after this file"
    return Gap(start, stop - start, before.path, before.file_size, reason)
