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
from store_core.codec.record_walk import find_record, walk_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource

_FIRST_ROWS = 64
_GROWTH = 4


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
    """Yield the frames and gaps of a slice in order; every row of the frames is a valid frame."""
    segment_end = part.from_offset + part.file_size
    log_end = max(min(segment_end, part.end_offset) - part.from_offset, 0)
    data = source.view(0, log_end)
    at = _boundary(data, part, part.start, log_end)
    stop = _boundary(data, part, part.stop, log_end)
    seen = at
    while at < stop:
        walk = walk_records(data, at, stop, sizer.next_rows(), sizer.max_bytes)
        frames = RecordFrames(data, part.from_offset, walk.starts)
        good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
        if good:
            yield frames if good == len(frames) else frames.take(np.arange(good))
        at = walk.stop
        if good < len(frames):
            at = int(walk.starts[good])
        elif walk.blank and _closes_segment(data, part, at):
            at = log_end
        elif not (walk.failed or walk.blank or at >= len(data)):
            seen = _forget(source, seen, at)
            continue
        if at < stop:
            after = _resume(data, part, at, log_end)
            yield _gap(data, part, at, after)
            at = after
    if part.missing_bytes and stop >= log_end:
        yield _missing(part, segment_end)


def _boundary(data: npt.NDArray[np.uint8], part: LogSlice, offset: int, log_end: int) -> int:
    """Return the position of the first record at or after an offset (see the module's text)."""
    at = offset - part.from_offset
    if at <= 0:
        return 0
    if at >= log_end:
        return log_end
    found = find_record(data, part.from_offset, at)
    return log_end if found < 0 else found


def _resume(data: npt.NDArray[np.uint8], part: LogSlice, at: int, log_end: int) -> int:
    found = find_record(data, part.from_offset, at + 1)
    return log_end if found < 0 else found


def _closes_segment(data: npt.NDArray[np.uint8], part: LogSlice, at: int) -> bool:
    """Tell whether a blank record ends the segment: by its size, or as nothing follows it."""
    size = int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)
    return size == part.file_size - at or find_record(data, part.from_offset, at + 1) < 0


def _forget(source: ByteSource, seen: int, at: int) -> int:
    source.forget(seen, at - seen)
    return at


def _gap(data: npt.NDArray[np.uint8], part: LogSlice, at: int, after: int) -> Gap:
    if at >= len(data):
        reason = f"the file ends here; {part.file_size} bytes were expected"
    else:
        head = data[at : at + 8].tobytes().hex(" ", 4)
        reason = f"no valid record: the bytes are {head}"
        if at + 8 <= len(data) and not data[at : min(after, len(data))].any():
            reason = "no valid record: the bytes are zero"
    return Gap(part.from_offset + at, after - at, part.path, at, reason)


def _missing(part: LogSlice, segment_end: int) -> Gap:
    reason = "segments are missing behind this file"
    return Gap(segment_end, part.missing_bytes, part.path, part.file_size, reason)
