"""Read a stretch of the log in order, from one record's start on, whichever segments it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.log.log_scan import BatchSizer, Gap, LogSlice, scan_slice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.readable_log import ReadableLog

_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 32 << 20


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
