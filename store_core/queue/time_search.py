"""From a store time to a queue offset, by the records that a queue points at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.queue.readable_queue import is_belied

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.log.record_reader import RecordReader
    from store_core.queue.readable_queue import SimpleQueue

_STRETCH = 16
_BLOCK = 4096


class TimeSearch:
    """Bisection by the store times of records: units of a consume queue have none.

    The times of a queue are taken to ascend; units whose records cannot be read are passed over,
    and those whose time, which no CRC covers, lies far outside of those before and after it.
    """

    def __init__(self, queue: SimpleQueue, reader: RecordReader) -> None:
        self._queue, self._reader = queue, reader

    def first_from(self, timestamp_ms: int) -> int:
        """Return the first queue offset whose time is at least this; ``max_offset`` if none."""
        low, high = self._queue.min_offset, self._queue.max_offset
        best = high
        while high - low > _STRETCH:
            middle = (low + high) // 2
            at, time = self._first_readable(middle, high)
            if at < 0:
                high = middle
            elif time >= timestamp_ms:
                best, high = at, middle
            else:
                low = at + 1
        passed = np.flatnonzero(self._agreed_times(low, high) >= max(timestamp_ms, 0))
        return low + int(passed[0]) if len(passed) else best

    def _first_readable(self, low: int, high: int) -> tuple[int, int]:
        width = 1  # records that cannot be read are rare, and then many
        while low < high:
            times = self._agreed_times(low, min(low + width, high))
            readable = np.flatnonzero(times >= 0)
            if len(readable):
                return low + int(readable[0]), int(times[readable[0]])
            low += width
            width = _BLOCK
        return -1, -1

    def _agreed_times(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Return the same as `_times`; -1 also where both neighbours belie a time."""
        begin, end = max(low - 1, self._queue.min_offset), min(high + 1, self._queue.max_offset)
        times = self._times(begin, end)
        before, after, found = times[:-2], times[2:], times.copy()
        found[1:-1][(before >= 0) & is_belied(before, times[1:-1], after)] = -1
        return found[low - begin : high - begin]

    def _times(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Return store times of units ``[low, high)``; -1 where no record can be read."""
        units = self._queue.queue.read_units(low, high)
        return _store_times(self._reader, units["commit_log_offset"])


def _store_times(reader: RecordReader, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the store times of the records at some places; -1 where there is none."""
    times = np.full(len(offsets), -1, np.int64)
    file_size = max(reader.log.segments.file_size, 1)
    numbers = offsets // file_size
    for number in np.unique(numbers[offsets >= 0]).tolist():
        segment = reader.log.segments.find(number * file_size)
        if segment is None:
            continue
        rows = np.flatnonzero(numbers == number)
        frames = reader.log.frames_at(segment, offsets[rows], reader.end_offset)
        times[rows[frames.ok]] = frames.column("store_timestamp")[frames.ok]
    return times
