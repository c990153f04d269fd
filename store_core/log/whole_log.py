"""All frames and gaps of a log in order: what queues and index are built from anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.log.log_scan import BatchSizer, LogSlice, scan_slice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.log.commit_log import CommitLog
    from store_core.log.log_scan import LogPart

_BATCH_ROWS = 1 << 16
_BATCH_BYTES = 32 << 20


def log_parts(log: CommitLog, end_offset: int) -> Iterator[LogPart]:
    """Yield the parts of the whole readable log; lost segments are gaps."""
    size = log.segments.file_size
    segments = [segment for segment in log.segments if segment.from_offset < end_offset]
    followers = [segment.from_offset for segment in segments[1:]]
    for segment, next_offset in zip(segments, [*followers, None]):
        stop = segment.from_offset + size
        missing = 0 if next_offset is None else next_offset - stop
        start = segment.from_offset
        part = LogSlice(segment.path, start, size, start, stop, end_offset, missing)
        yield from scan_slice(log.source(segment), part, BatchSizer(_BATCH_ROWS, _BATCH_BYTES))
