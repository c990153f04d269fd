# SPDX-License-Identifier: Apache-2.0
"""One interface to read consume queues of both kinds: units from a queue offset, and times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np

from store_core.layout import BATCH_CQ_UNIT, CQ_UNIT
from store_core.queue.batch_consume_queue import find_unit, max_queue_offset, min_queue_offset
from store_core.queue.consume_queue import NATIVE_CQ_UNIT
from store_core.queue.consume_queue_ext import is_ext_address
from store_core.queue.queue_range import end_of_counting, points_at_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Callable

    import numpy.typing as npt

    from store_core.log.commit_log import ReadableLog
    from store_core.log.record_reader import RecordReader
    from store_core.queue.consume_queue import Units
    from store_core.queue.consume_queue_ext import ExtUnits
    from store_core.queue.consume_queue_writer import ConsumeQueueWriter
    from store_core.queue.queue_database import StoredUnits
    from store_core.queue.queue_range import QueueRange

    Int64s = npt.NDArray[np.int64]

LOWER, UPPER = "lower", "upper"
_ROWS = 40
_SLACK_MS = 10_000
_NEIGHBOURS = 2
_ONE = b"\1"  # repeated, a sequence of ones in a tenth of a list's time
_STRETCH = 16
_BLOCK = 4096


class UnitRun(NamedTuple):
    """Consecutive units of one file, in columns."""

    queue_offset: Sequence[int]
    batch_size: Sequence[int]
    commit_log_offset: Int64s
    message_size: npt.NDArray[np.int32]
    tags_code: Int64s

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield queue offset, batch size, place and size of each unit.

        Numbers are converted on demand: of 800 units a pull uses 32.
        """
        for at in range(0, len(self.queue_offset), _ROWS):
            some = slice(at, at + _ROWS)
            yield from zip(
                self.queue_offset[some],
                self.batch_size[some],
                self.commit_log_offset[some].tolist(),
                self.message_size[some].tolist(),
            )


class SimpleQueue:
    """A consume queue with one unit per message; its range is pinned.

    Parameters
    ----------
    queue
        Its units. While the queue is written, units in the range may expire, oldest first.
    read_ext
        Looks up its extension units; returns None if it has none. Called if a tags code is an
        address.

    Attributes
    ----------
    min_offset, max_offset
        Queue offsets; max is exclusive.
    """

    unit_bytes = CQ_UNIT.size

    def __init__(
        self,
        queue: StoredUnits | ConsumeQueueWriter,
        held: QueueRange,
        read_ext: Callable[[Int64s], ExtUnits | None],
    ) -> None:
        self.queue = queue
        self.min_offset, self.max_offset = held.min_offset, held.max_offset
        self._read_ext = read_ext

    def units_from(self, queue_offset: int, max_units: int) -> UnitRun | None:
        """Return units from ``queue_offset`` on, at most to the end of its file.

        None if no file contains it (``iterateFrom`` of RocketMQ's queues, 5.3.3).
        """
        file_stop = self.queue.file_stop(queue_offset)
        if file_stop is None:
            return None
        stop = min(file_stop, self.max_offset, queue_offset + max_units)
        units = self.queue.read_units(queue_offset, stop)
        if len(units) < stop - queue_offset:
            units = _with_expired(units, stop - queue_offset)
        tags_code = np.ascontiguousarray(units["tags_code"])
        ext = self._ext_units(tags_code)
        return UnitRun(
            range(queue_offset, queue_offset + len(units)),
            _ONE * len(units),
            units["commit_log_offset"],
            units["message_size"],
            tags_code if ext is None else ext.tags_code,
        )

    def unit_columns(self, queue_offset: int, max_units: int) -> Units:
        """Return units from a queue offset in range on, across files, with tags codes resolved.

        A tags code that is still an address belongs to an extension unit that is gone; a unit that
        points nowhere (-1) has expired meanwhile.
        """
        stop = min(self.max_offset, queue_offset + max_units)
        units = self.queue.read_units(queue_offset, stop)
        if len(units) < stop - queue_offset:
            units = _with_expired(units, stop - queue_offset)
        ext = self._ext_units(np.ascontiguousarray(units["tags_code"]))
        if ext is not None:
            units = units.copy()  # others may read them, too
            units["tags_code"] = ext.tags_code
        return units

    def _ext_units(self, tags_code: Int64s) -> ExtUnits | None:
        return self._read_ext(tags_code) if is_ext_address(tags_code).any() else None

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the queue offset where RocketMQ continues if a file is missing."""
        return self.queue.roll_next_file(queue_offset)

    def commit_log_offset_of(self, queue_offset: int) -> int:
        """Return the log offset of the record of a queue offset in range; -1 if no file has it."""
        run = self.units_from(queue_offset, 1)
        return int(run.commit_log_offset[0]) if run else -1

    def offset_by_time(self, timestamp_ms: int, boundary: str, reader: RecordReader) -> int:
        """Return the first queue offset at or after a time, or the last at or before it.

        ``LOWER`` gives ``max_offset`` if all are older, ``UPPER`` ``min_offset`` if all are newer.
        Source: ``getOffsetInQueueByTime`` of RocketMQ's queues, ``ConsumeQueueStore`` (5.3.3).
        """
        search = TimeSearch(self, reader)
        if boundary == LOWER:
            return search.first_from(timestamp_ms)
        return max(search.first_from(timestamp_ms + 1) - 1, self.min_offset)


class BatchQueue:
    """A batch consume queue: one unit per record, which may contain several messages.

    Members shared with `SimpleQueue` have the same names.
    """

    unit_bytes = BATCH_CQ_UNIT.size

    def __init__(
        self,
        units: npt.NDArray[np.void],
        units_per_file: int,
        min_phy_offset: int,
    ) -> None:
        self.units = units
        self._units_per_file = units_per_file
        self.min_offset = max(min_queue_offset(units, max(min_phy_offset, 0)), 0)
        self.max_offset = max_queue_offset(units)

    def units_from(self, queue_offset: int, max_units: int) -> UnitRun | None:
        """Return units of one file; see `SimpleQueue`."""
        row = find_unit(self.units, queue_offset)
        if row is None:
            return None
        in_file = row % self._units_per_file
        units = self.units[row : row + min(self._units_per_file - in_file, max_units)]
        return UnitRun(
            units["base_queue_offset"].tolist(),
            units["batch_size"].tolist(),
            units["commit_log_offset"],
            units["message_size"],
            np.ascontiguousarray(units["tags_code"]),
        )

    def roll_next_file(self, queue_offset: int) -> int:
        """Return 0, as ``BatchConsumeQueue.rollNextFile`` does."""
        del queue_offset
        return 0

    def commit_log_offset_of(self, queue_offset: int) -> int:
        """Return the place of a record; see `SimpleQueue`."""
        run = self.units_from(queue_offset, 1)
        return int(run.commit_log_offset[0]) if run else -1

    def offset_by_time(self, timestamp_ms: int, boundary: str, reader: RecordReader) -> int:
        """Return the first queue offset of the unit at a time, by the units' own times.

        Some answers differ from a `SimpleQueue`'s, as in RocketMQ's ``BatchConsumeQueue``: for a
        time from that of a file's last unit to that of the next file's first, both boundaries give
        the last unit; so do times after all files, rather than ``max_offset``.
        """
        del reader
        if self.max_offset <= self.min_offset:
            return self.min_offset
        times = agreed_times(self.units["store_timestamp"])
        if boundary == LOWER:
            row = self._first_row_from(times, timestamp_ms)
        else:
            row = max(int(np.searchsorted(times, timestamp_ms, "right")) - 1, 0)
        return max(int(self.units["base_queue_offset"][row]), self.min_offset)

    def _first_row_from(self, times: Int64s, timestamp_ms: int) -> int:
        """Return the first unit at or after a time, in the last file that begins by that time."""
        begins = times[:: self._units_per_file]
        file = max(int(np.searchsorted(begins, timestamp_ms, "right")) - 1, 0)
        start = file * self._units_per_file
        of_file = times[start : start + self._units_per_file]
        row = len(of_file) - 1
        if timestamp_ms < int(of_file[-1]):
            row = int(np.searchsorted(of_file, timestamp_ms, "left"))
        return start + row


ReadableQueue = Union[SimpleQueue, BatchQueue]
"""A queue of either kind; its range is pinned."""


def _with_expired(units: Units, count: int) -> Units:
    """Return ``count`` units; the first, which have expired meanwhile, point nowhere."""
    gone = np.zeros(count - len(units), NATIVE_CQ_UNIT)
    gone["commit_log_offset"] = -1
    return np.concatenate([gone, units])


def is_belied(before: Int64s, times: Int64s, after: Int64s) -> npt.NDArray[np.bool_]:
    """Return which times are far outside the range of their two neighbours, if those ascend.

    Where a clock was set back, the previous time is the later one: no time is refuted there.
    """
    outside = (times < before - _SLACK_MS) | (times > after + _SLACK_MS)
    return (before <= after) & outside


def agreed_times(times: Int64s) -> Int64s:
    """Return the units' times with those that neighbours refute replaced: no checksum covers them.

    No unit follows the last one, so the two before it decide whether its time is too early.
    """
    times = times.astype(np.int64)
    if len(times) <= _NEIGHBOURS:
        return times
    bad = is_belied(times[:-2], times[1:-1], times[2:])
    rows = np.flatnonzero(bad) + 1
    times[rows] = times[rows - 1]
    if times[-1] < times[-3:-1].min() - _SLACK_MS:
        times[-1] = times[-2] + 1  # after the previous unit's
    return times


def proved_batch_units(
    units: Units, key: tuple[str, int], log: ReadableLog, end_offset: int
) -> Units:
    """Return the units of a batch queue, (topic, queue id), up to the last that counts.

    A unit counts if it points at a record of the queue before the log's end (see ``queue_range``).
    """

    def place_of(at: int) -> tuple[int, int]:
        return int(units["commit_log_offset"][at]), int(units["message_size"][at])

    end = end_of_counting(
        0, len(units), place_of, lambda at: points_at_record(log, key, *place_of(at), end_offset)
    )
    return units[:end]


class TimeSearch:
    """Bisection by the store times of records, as units of a consume queue have none.

    It assumes that a queue's times ascend. It skips units whose records cannot be read, and units
    whose time, which no CRC covers, is far outside the range of its neighbours.
    """

    def __init__(self, queue: SimpleQueue, reader: RecordReader) -> None:
        self._queue, self._reader = queue, reader

    def first_from(self, timestamp_ms: int) -> int:
        """Return the first queue offset at or after a time; ``max_offset`` if there is none."""
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
        width = 1  # unreadable records are rare, but come in numbers
        while low < high:
            times = self._agreed_times(low, min(low + width, high))
            readable = np.flatnonzero(times >= 0)
            if len(readable):
                return low + int(readable[0]), int(times[readable[0]])
            low += width
            width = _BLOCK
        return -1, -1

    def _agreed_times(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Return `_times`, but -1 also where both neighbours refute a time."""
        begin, end = max(low - 1, self._queue.min_offset), min(high + 1, self._queue.max_offset)
        times = self._times(begin, end)
        before, after, found = times[:-2], times[2:], times.copy()
        found[1:-1][(before >= 0) & is_belied(before, times[1:-1], after)] = -1
        return found[low - begin : high - begin]

    def _times(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Return the store times of units ``[low, high)``; -1 where no record can be read."""
        units = self._queue.queue.read_units(low, high)
        if len(units) < high - low:
            units = _with_expired(units, high - low)
        return _store_times(self._reader, units["commit_log_offset"])


def _store_times(reader: RecordReader, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the store times of the records at log offsets; -1 where there is none."""
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
