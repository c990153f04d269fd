"""Read a stretch of the log in order, from one record's start on, whichever segments it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.log.log_scan import BatchSizer, Gap, LogSlice, scan_slice

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.readable_log import ReadableLog

_BATCH_ROWS = 1 << 16
_KNOWN_ROWS = 1 << 14
_BATCH_BYTES = 32 << 20


def frames_of(log: ReadableLog, starts: npt.NDArray[np.int64]) -> Iterator[RecordFrames]:
    """Yield the frames of records of which it is known where they start (ascending)."""
    size = log.segments.file_size
    for segment in log.segments:
        end = segment.from_offset + size
        low, high = np.searchsorted(starts, (segment.from_offset, end)).tolist()
        for first in range(low, high, _KNOWN_ROWS):
            yield log.frames_at(segment, starts[first : min(first + _KNOWN_ROWS, high)], end)


def frames_from(log: ReadableLog, start: int, stop: int) -> Iterator[RecordFrames]:
    """Yield the records that start in ``[start, stop)``; damaged ones are left out.

    Parameters
    ----------
    log
        The log.
    start, stop
        Physical offsets; ``start`` is that of a record, or of what closes a segment. Nothing
        behind ``stop`` is looked at.
    """
    size = log.segments.file_size
    for segment in log.segments:
        begin, end = segment.from_offset, segment.from_offset + size
        if end <= start or begin >= stop:
            continue
        part = LogSlice(segment.path, begin, size, max(start, begin), end, stop)
        for found in scan_slice(log.source(segment), part, BatchSizer(_BATCH_ROWS, _BATCH_BYTES)):
            if not isinstance(found, Gap):
                yield found
