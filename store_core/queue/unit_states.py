# SPDX-License-Identifier: Apache-2.0
"""What a store's queues show about records that follow a place where the log fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple, Union

import numpy as np

from store_core.codec.java_string import is_name
from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.layout import MIN_RECORD_BYTES
from store_core.log.end_rules import DISPATCHED, LACKING, NO_UNIT, REPLACED, UNKNOWN
from store_core.queue.dispatch_request import DispatchDecoder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.commit_log import ReadableLog
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_database import StoredUnits

    Int64s = npt.NDArray[np.int64]
    States = npt.NDArray[np.int8]
    QueueKey = tuple[str, int]
    Units = npt.NDArray[np.void]
    AnyUnits = Union[StoredUnits, Units]
    """Units of a queue as in its files, even if a recovery has begun to change the queue; a batch
    queue's are one array."""

_BLOCK_UNITS = 1 << 16
_UNITS_OF_LOST_LOG = 1 << 20


class PlacedUnits(NamedTuple):
    """Units, ascending by log offset."""

    start: Int64s
    size: Int64s
    number: Int64s

    def rows_of(self, start: Int64s, size: npt.NDArray[np.int32]) -> Int64s:
        """Return for each record the unit that refers to it; -1 if none does."""
        found = np.full(len(start), -1, np.int64)
        if len(self.start):
            low = np.searchsorted(self.start, start)
            high = np.searchsorted(self.start, start, "right") - 1
            for at in (np.minimum(low, len(self.start) - 1), high):  # an old cut may leave two
                is_own = (self.start[at] == start) & (self.size[at] == size)
                found[is_own] = at[is_own]
        return found


class UnitsBehind:
    """The units of a simple queue that point at or after an offset of the log.

    Usually they are its last ones, found by bisection. A queue that is not in log order may have
    others, which `search_all` finds.
    """

    def __init__(self, queue: StoredUnits, offset: int, log_bytes: int) -> None:
        self._queue, self._offset, self._log_bytes = queue, offset, log_bytes
        self.first, self._end = queue.first_unit_offset(), queue.end_of_units()
        self.stop = max(min(queue.correct_min_offset(offset, self._end), self._end), 0)
        self._parts = [self._part(self.stop, self._end)]
        self.placed = _placed(self._parts)

    def search_all(self) -> bool:
        """Search the rest of the queue too; return whether there are certainly no more.

        Reads blocks backwards until one has no such unit; in earlier files, it reads only the first
        units, which shows files that have changed places.
        """
        at = self.stop
        while at > self.first:
            begin = max(at - _BLOCK_UNITS, self.first)
            part = self._part(begin, at)
            self._parts.append(part)
            at = begin
            if not len(part.start):
                break
        end = _possible_end(self._queue, self._end, self._log_bytes)
        for begin in range(self._end, end, _BLOCK_UNITS):  # after a hole
            self._parts.append(self._part(begin, begin + _BLOCK_UNITS))
        self.placed = _placed(self._parts)
        borders = [border for border in self._queue.file_boundaries() if self.first < border < at]
        return all(self._queue.place_of(border)[0] < self._offset for border in borders)

    def _part(self, begin: int, stop: int) -> PlacedUnits:
        return _units_from(self._queue, begin, stop, self._offset)


def bytes_of(log: ReadableLog) -> int:
    """Return the bytes of all segments of a log."""
    return sum(log.segments.file_size for _ in log.segments)


def _possible_end(queue: StoredUnits, end: int, log_bytes: int) -> int:
    """Return the end of the range in which more units may follow a queue's end after a hole.

    At most as many units as the log has room for records, or a few files of them if the log has
    lost its segments; a file that is not a queue's may have any length.
    """
    return min(queue.stored_end(), end + max(log_bytes // MIN_RECORD_BYTES, _UNITS_OF_LOST_LOG))


def unit_blocks(queue: AnyUnits, log_bytes: int) -> Iterator[PlacedUnits]:
    """Yield all units of a queue, also those after a hole, block by block, the last block first."""
    if isinstance(queue, np.ndarray):
        yield batch_units(queue)
        return
    first = queue.first_unit_offset()
    stop = _possible_end(queue, queue.end_of_units(), log_bytes)
    while stop > first:
        begin = max(stop - _BLOCK_UNITS, first)
        yield _placed([_units_from(queue, begin, stop, 0)])
        stop = begin


def batch_units(units: Units) -> PlacedUnits:
    """Return units of a batch queue; a unit's number is its first message's queue offset."""
    columns = ("commit_log_offset", "message_size", "base_queue_offset")
    return _placed([PlacedUnits(*(units[name].astype(np.int64) for name in columns))])


def _units_from(queue: StoredUnits, begin: int, stop: int, offset: int) -> PlacedUnits:
    """Return the units ``[begin, stop)`` that point at or after an offset of the log."""
    units = queue.read_units(begin, stop)
    wanted = (units["commit_log_offset"] >= offset) & (units["message_size"] > 0)
    number = np.flatnonzero(wanted).astype(np.int64)
    start = units["commit_log_offset"][number].astype(np.int64)
    return PlacedUnits(start, units["message_size"][number].astype(np.int64), number + begin)


def _placed(parts: list[PlacedUnits]) -> PlacedUnits:
    joined = [np.concatenate(column) for column in zip(*parts)]
    order = np.lexsort((joined[1], joined[0]))
    return PlacedUnits(*(column[order] for column in joined))


_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)
_UNITS_BEFORE = 64  # if none of this many points at a readable record, nothing is known
_NO_UNITS = PlacedUnits(*(np.empty(0, np.int64) for _ in range(3)))


class _LastUnit(NamedTuple):
    """The last unit before a place: its record's queue offset, and the next unit's number."""

    queue_offset: int
    next_number: int


class QueueUnitStates:
    """Returns whether units of their queues refer to records (``end_rules.UnitStates``).

    A unit refers to a record by place and size, whatever its queue offset: if earlier records were
    damaged when the queue was built, units are at other queue offsets than their records say. A
    record without a unit is in an unknown state if its queue is missing or damaged, or lacks more
    before the record than the lost part of the log explains. A record that its queue seems to lack
    may belong to another queue of its topic: no checksum covers its queue id.

    Parameters
    ----------
    find
        Returns the units of (topic, queue id); None if there is no such queue.
    offset, gap_bytes
        Log offset of the failure, and how many bytes later the first record follows.
    """

    def __init__(
        self,
        log: ReadableLog,
        find: Callable[[str, int], AnyUnits | None],
        keys: Iterable[QueueKey],
        offset: int,
        gap_bytes: int,
    ) -> None:
        self._log, self._find, self._keys, self._offset = log, find, [*keys], offset
        self._lost = gap_bytes // MIN_RECORD_BYTES
        self._decoder = DispatchDecoder(())
        self._queues: dict[QueueKey, _SimpleStates | PlacedUnits | None] = {}

    def states_of(self, frames: RecordFrames) -> States:
        """Return the state of each record; each call's records follow those of the call before."""
        states = np.full(len(frames), NO_UNIT, np.int8)
        queued = self._decoder.outline(frames).queued()
        for topic, queue_id, rows in queued.by_queue():
            at = np.searchsorted(frames.column("commit_log_offset"), rows.commit_log_offset)
            try:
                states[at] = self._of_queue((topic, queue_id), rows)
            except _DAMAGED:
                self._queues[topic, queue_id] = None
                states[at] = UNKNOWN
        return states

    def _of_queue(self, key: QueueKey, rows: DispatchRequests) -> States:
        if key not in self._queues:
            self._queues[key] = self._opened(key)
        queue = self._queues[key]
        if isinstance(queue, _SimpleStates):
            states = queue.states_of(rows)
            lacking = np.flatnonzero(states < 0)
            states[lacking[self._is_elsewhere(key, rows.take(lacking))]] = DISPATCHED
            return states
        if queue is None:
            return np.full(len(rows), UNKNOWN, np.int8)
        found = queue.rows_of(rows.commit_log_offset, rows.message_size)
        return np.where(found >= 0, DISPATCHED, UNKNOWN).astype(np.int8)

    def _is_elsewhere(self, key: QueueKey, rows: DispatchRequests) -> npt.NDArray[np.bool_]:
        """Return which rows have a unit in another queue of the topic."""
        found = np.zeros(len(rows), bool)
        if found.size == 0:
            return found
        for other in self._keys:
            if other[0] == key[0] and other != key:
                placed = self._placed(other)
                found |= placed.rows_of(rows.commit_log_offset, rows.message_size) >= 0
        return found

    def _placed(self, key: QueueKey) -> PlacedUnits:
        if key not in self._queues:
            try:
                self._queues[key] = self._opened(key)
            except _DAMAGED:
                self._queues[key] = None
        queue = self._queues[key]
        return queue.placed if isinstance(queue, _SimpleStates) else queue or _NO_UNITS

    def _opened(self, key: QueueKey) -> _SimpleStates | PlacedUnits | None:
        units = self._find(*key)
        if units is None:
            return None
        if isinstance(units, np.ndarray):
            return batch_units(units)
        return _SimpleStates(self._log, key, units, self._offset, self._lost)


class _SimpleStates:
    """States of the records of one simple queue; the log lost at most ``lost`` records."""

    def __init__(
        self, log: ReadableLog, key: QueueKey, units: StoredUnits, offset: int, lost: int
    ) -> None:
        self._log, self._key, self._units = log, key, units
        self._offset, self._lost = offset, lost
        self._behind = UnitsBehind(units, offset, bytes_of(log))
        self._last = self._last_before()
        self._is_searched = self._is_all = False
        self._is_whole: bool | None = None  # not known yet

    @property
    def placed(self) -> PlacedUnits:
        """The known units that point after the failure."""
        return self._behind.placed

    def states_of(self, rows: DispatchRequests) -> States:
        found = self._found(rows)
        states = np.where(found >= 0, DISPATCHED, UNKNOWN).astype(np.int8)
        bare = np.flatnonzero(found < 0)
        if len(bare) and self._is_all:
            states[bare] = self._of_bare(rows, found, bare)
        held = np.flatnonzero(found >= 0)
        if len(held):
            self._last = self._held(rows, found, int(held[-1]))
        return states

    def _found(self, rows: DispatchRequests) -> Int64s:
        found = self._behind.placed.rows_of(rows.commit_log_offset, rows.message_size)
        if (found >= 0).all() or self._is_searched:
            return found
        self._is_searched = True
        self._is_all = self._behind.search_all()
        return self._behind.placed.rows_of(rows.commit_log_offset, rows.message_size)

    def _of_bare(self, rows: DispatchRequests, found: Int64s, bare: Int64s) -> States:
        """Return the states of records that no unit refers to."""
        states = np.full(len(bare), UNKNOWN, np.int8)
        first = int(bare[0])
        last = self._last if first == 0 else self._held(rows, found, first - 1)
        if last is None:
            return states
        wanted = rows.queue_offset[bare]
        is_next = (wanted > last.queue_offset) & (wanted >= last.next_number)
        if self._is_whole is None:
            missing = int(wanted[0]) - last.queue_offset - 1
            self._is_whole = bool(is_next[0]) and missing <= self._lost
        if self._is_whole:
            states[is_next & ~self._has_bytes(wanted)] = LACKING
        if self._is_replaced(rows, first, last):
            states[0] = REPLACED
        return states

    def _has_bytes(self, numbers: Int64s) -> npt.NDArray[np.bool_]:
        """Return which queue offsets have a unit in the files, even a damaged one."""
        begin = max(int(numbers.min()), self._behind.first)
        stop = min(int(numbers.max()) + 1, self._units.stored_end())
        units = self._units.read_units(begin, stop)
        places = begin + np.flatnonzero(units != np.zeros((), units.dtype))
        return np.isin(numbers, places)

    def _held(self, rows: DispatchRequests, found: Int64s, row: int) -> _LastUnit:
        """Return a row's unit as the last unit."""
        number = int(self._behind.placed.number[found[row]])
        return _LastUnit(int(rows.queue_offset[row]), number + 1)

    def _last_before(self) -> _LastUnit | None:
        """Return the last unit at a readable record before the failure; None if unknown."""
        first, stop = self._behind.first, self._behind.stop
        for number in range(stop - 1, max(first, stop - _UNITS_BEFORE) - 1, -1):
            start, size = self._units.place_of(number)
            if start < self._log.min_offset:  # usually its record's queue offset
                return _LastUnit(number, number + 1)
            record = self._record(start, size)
            if record is not None:
                return _LastUnit(record[0], number + 1)
        return _LastUnit(stop - 1, stop) if stop <= first else None

    def _is_replaced(self, rows: DispatchRequests, row: int, last: _LastUnit) -> bool:
        """Return whether another record, before the failure, has the queue offset of a row.

        Such a record was written after the cut, so it was stored no earlier than the row, and the
        queue's units are at the offsets their records say. A topic that was deleted and created
        again has two records of an offset too; RocketMQ's rebuild skips the second, except at 0.
        """
        wanted = int(rows.queue_offset[row])
        is_taken = self._behind.first <= wanted < last.next_number == last.queue_offset + 1
        record = self._record(*self._units.place_of(wanted)) if is_taken else None
        if record is None or record[0] != wanted:
            return False
        return wanted == 0 or record[1] >= int(rows.store_timestamp[row])

    def _record(self, start: int, size: int) -> tuple[int, int] | None:
        """Return queue offset and store time of the record of a unit before the failure."""
        segment = self._log.segments.find(start) if start >= 0 else None
        if segment is None or start + size > self._offset:
            return None
        frames = self._log.frames_at(segment, np.array([start], np.int64), self._offset)
        if not frames.ok[0] or int(frames.column("total_size")[0]) != size:
            return None
        begin = int(frames.topic_start[0])
        topic = frames.data[begin : begin + int(frames.topic_length[0])].tobytes()
        name, queue_id = self._key
        if int(frames.column("queue_id")[0]) != queue_id or not is_name(topic, name):
            return None
        time_ms = int(frames.column("store_timestamp")[0])
        return int(frames.column("queue_offset")[0]), time_ms
