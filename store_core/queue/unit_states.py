"""What the queues of a store know of records that follow a place where its log fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple, Union

import numpy as np

from store_core.codec.java_string import is_name
from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.layout.message import MIN_RECORD_BYTES
from store_core.log.end_rules import DISPATCHED, LACKING, NO_UNIT, REPLACED, UNKNOWN
from store_core.queue.batch_consume_queue import BatchConsumeQueue
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.queue.stored_units import StoredUnits
from store_core.queue.units_behind import PlacedUnits, UnitsBehind, batch_units

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.dispatch_request import DispatchRequests

    Int64s = npt.NDArray[np.int64]
    States = npt.NDArray[np.int8]
    QueueKey = tuple[str, int]

AnyUnits = Union[StoredUnits, BatchConsumeQueue]
"""Units of a queue as its files hold them, whatever a recovery has begun to do with them."""

_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)
_UNITS_BEFORE = 64  # of so many one points at a record that can be read, or nothing is known


_NO_UNITS = PlacedUnits(*(np.empty(0, np.int64) for _ in range(3)))


class _LastUnit(NamedTuple):
    """The last unit before some place: what its record says, and what the next unit would be."""

    queue_offset: int
    next_number: int


class QueueUnitStates:
    """Says of records which units of their queues refer to them (``end_rules.UnitStates``).

    A unit refers to a record by its place and size, whatever its queue offset is: units stand at
    other queue offsets than their records say where records before them were damaged when the
    queue was made. A queue that is not there, or damaged, or that lacks more before a record than
    what was lost of the log explains, tells nothing of a record without a unit. A record that its
    queue seems to lack may be of another queue of its topic: no checksum covers its queue id.

    Parameters
    ----------
    log
        All that the files hold.
    find
        Returns the units of (topic, queue id); None: there is no such queue.
    keys
        Topic and queue id of all queues.
    offset, gap_bytes
        Where the log fails, and how many bytes later the first record follows.
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

    def of(self, frames: RecordFrames) -> States:
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
            states = queue.of(rows)
            lacking = np.flatnonzero(states < 0)
            states[lacking[self._is_elsewhere(key, rows.take(lacking))]] = DISPATCHED
            return states
        if queue is None:
            return np.full(len(rows), UNKNOWN, np.int8)
        found = queue.rows_of(rows.commit_log_offset, rows.message_size)
        return np.where(found >= 0, DISPATCHED, UNKNOWN).astype(np.int8)

    def _is_elsewhere(self, key: QueueKey, rows: DispatchRequests) -> npt.NDArray[np.bool_]:
        """Return which rows another queue of the topic has a unit of."""
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
        if isinstance(units, BatchConsumeQueue):
            return batch_units(units)
        return _SimpleStates(self._log, key, units, self._offset, self._lost)


class _SimpleStates:
    """States of the records of one queue of a unit a message; ``lost``: that many were lost."""

    def __init__(
        self, log: ReadableLog, key: QueueKey, units: StoredUnits, offset: int, lost: int
    ) -> None:
        self._log, self._key, self._units = log, key, units
        self._offset, self._lost = offset, lost
        self._behind = UnitsBehind(units, offset)
        self._last = self._last_before()
        self._is_searched = self._is_all = False
        self._is_whole: bool | None = None  # not asked yet

    @property
    def placed(self) -> PlacedUnits:
        """The units that are known to point after the failure."""
        return self._behind.placed

    def of(self, rows: DispatchRequests) -> States:
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
        """Return the states of records to which no unit refers."""
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
            states[is_next] = LACKING
        if self._is_replaced(rows, first, last):
            states[0] = REPLACED
        return states

    def _held(self, rows: DispatchRequests, found: Int64s, row: int) -> _LastUnit:
        """Return the unit that refers to a row as the last one."""
        number = int(self._behind.placed.number[found[row]])
        return _LastUnit(int(rows.queue_offset[row]), number + 1)

    def _last_before(self) -> _LastUnit | None:
        """Return the last unit that points before the failure; None: its record is not known."""
        first, stop = self._behind.first, self._behind.stop
        for number in range(stop - 1, max(first, stop - _UNITS_BEFORE) - 1, -1):
            start, size = self._units.place_of(number)
            if start < self._log.min_offset:  # it stands where its record says, as a rule
                return _LastUnit(number, number + 1)
            record = self._record(start, size)
            if record is not None:
                return _LastUnit(record[0], number + 1)
        return _LastUnit(stop - 1, stop) if stop <= first else None

    def _is_replaced(self, rows: DispatchRequests, row: int, last: _LastUnit) -> bool:
        """Return whether another record, before the failure, has the queue offset of a row.

        It was written over the cut, so it was stored no earlier; and the queue is in its places. A
        topic that was deleted and made once more has two records of an offset, too, and a rebuild
        skips the second one, but for that of offset 0 (`place_units`).
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
