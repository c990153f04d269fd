"""Frames of ranges of a log that have to be read whatever damage there is elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from store_core.errors import CorruptRecordError
from store_core.log.log_scan import BatchSizer, Gap, LogSlice, scan_slice

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.readable_log import ReadableLog

_SCAN_ROWS = 16384
_SCAN_BYTES = 32 << 20


def frames_in(log: ReadableLog, end_offset: int, start: int, stop: int) -> Iterator[RecordFrames]:
    """Yield the records that start in ``[start, stop)`` of a log that ends at ``end_offset``.

    Raises
    ------
    CorruptRecordError
        Something in there is damaged or missing.
    """
    for part in _parts(log, end_offset, start, stop):
        if isinstance(part, Gap):
            raise CorruptRecordError(part.reason, part.path, part.position)
        yield part


def is_of_topic(frames: RecordFrames, topic: str) -> npt.NDArray[np.bool_]:
    """Tell which records are of a topic."""
    wanted = np.frombuffer(topic.encode("utf-8", "surrogatepass"), np.uint8)
    same: npt.NDArray[np.bool_] = frames.topic_length == len(wanted)
    if len(wanted) and same.any():
        rows = np.flatnonzero(same)
        texts = sliding_window_view(frames.data, len(wanted))[frames.topic_start[rows]]
        same[rows] = (texts == wanted).all(axis=1)
    return same


def merged_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges ascending and disjoint."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def _parts(
    log: ReadableLog, end_offset: int, start: int, stop: int
) -> Iterator[RecordFrames | Gap]:
    stop = min(stop, end_offset)
    size = log.segments.file_size
    expected = start
    for segment in log.segments:
        low = max(start, segment.from_offset)
        high = min(stop, segment.from_offset + size)
        if low >= high:
            continue
        if low > expected:
            yield _lost(expected, low, segment.path)
        expected = high
        piece = LogSlice(segment.path, segment.from_offset, size, low, high, end_offset)
        yield from scan_slice(log.source(segment), piece, BatchSizer(_SCAN_ROWS, _SCAN_BYTES))
    if expected < stop:
        yield _lost(expected, stop, log.uri)


def _lost(start: int, stop: int, path: str) -> Gap:
    text = f"the segments that held offsets {start} to {stop} of the log are missing"
    return Gap(start, stop - start, path, 0, text)
