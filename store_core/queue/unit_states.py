"""What the queues of a store know of records that follow a place where its log fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.layout.message import MIN_RECORD_BYTES
from store_core.log.end_rules import DISPATCHED, LACKING, NO_UNIT, REPLACED, UNKNOWN
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.queue.queue_range import points_at_record

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.dispatch_request import DispatchRequests

    States = npt.NDArray[np.int8]
    Units = npt.NDArray[np.void]
    QueueKey = tuple[str, int]

_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)


class KnownUnits(NamedTuple):
    """Units of a queue, as ``ConsumeQueue.read_units`` gives them, and where they end."""

    read_units: Callable[[int, int], Units]
    end: int


class QueueUnitStates:
    """Compares records with the units at their queue offsets (``end_rules.UnitStates``).

    A queue that is not there, or damaged, or that ends further before a record than what was lost
    of the log explains, tells nothing.

    Parameters
    ----------
    log
        All that the files hold.
    find
        Returns the units of (topic, queue id); None: there is no such queue.
    offset, gap_bytes
        Where the log fails, and how many bytes later the first record follows.
    """

    def __init__(
        self,
        log: ReadableLog,
        find: Callable[[str, int], KnownUnits | None],
        offset: int,
        gap_bytes: int,
    ) -> None:
        self._log, self._find, self._offset = log, find, offset
        self._lost = gap_bytes // MIN_RECORD_BYTES
        self._decoder = DispatchDecoder(())
        self._units: dict[QueueKey, KnownUnits | None] = {}
        self._is_whole: dict[QueueKey, bool] = {}

    def of(self, frames: RecordFrames) -> States:
        """Return the state of each record; each call's records follow those of the call before."""
        states = np.full(len(frames), NO_UNIT, np.int8)
        queued = self._decoder.outline(frames).queued()
        for topic, queue_id, rows in queued.by_queue():
            at = np.searchsorted(frames.column("commit_log_offset"), rows.commit_log_offset)
            try:
                states[at] = self._of_queue((topic, queue_id), rows)
            except _DAMAGED:
                self._units[topic, queue_id] = None
                states[at] = UNKNOWN
        return states

    def _of_queue(self, key: QueueKey, rows: DispatchRequests) -> States:
        if key not in self._units:
            self._units[key] = self._find(*key)
        known = self._units[key]
        states = np.full(len(rows), UNKNOWN, np.int8)
        if known is None:
            return states
        wanted = rows.queue_offset
        beyond = wanted >= known.end
        if beyond.any() and key not in self._is_whole:
            missing = int(wanted[beyond][0]) - known.end
            self._is_whole[key] = missing <= self._lost
        if self._is_whole.get(key, False):
            states[beyond] = LACKING
        inside = np.flatnonzero(~beyond & (wanted >= 0))
        if len(inside):
            states[inside] = self._of_units(key, known, rows.take(inside))
        return states

    def _of_units(self, key: QueueKey, known: KnownUnits, rows: DispatchRequests) -> States:
        first, stop = int(rows.queue_offset.min()), int(rows.queue_offset.max()) + 1
        states = np.full(len(rows), UNKNOWN, np.int8)
        if stop - first > 2 * len(rows) + self._lost:  # of records that are none of one queue
            return states
        units = known.read_units(first, stop)
        if len(units) < stop - first:  # its first files expired
            return states
        units = units[rows.queue_offset - first]
        start = units["commit_log_offset"]
        is_own = (start == rows.commit_log_offset) & (units["message_size"] == rows.message_size)
        states[is_own] = DISPATCHED
        before = np.flatnonzero(~is_own & (start >= 0) & (start < self._offset))
        if len(before) and self._is_in_place(key, units[before[0]], rows, int(before[0])):
            states[before] = REPLACED
        return states

    def _is_in_place(self, key: QueueKey, unit: np.void, rows: DispatchRequests, row: int) -> bool:
        """Return whether a unit points at a record before the failure that has its queue offset."""
        start, size = int(unit["commit_log_offset"]), int(unit["message_size"])
        segment = self._log.segments.find(start)
        if segment is None or not points_at_record(self._log, key, start, size, self._offset):
            return False
        frames = self._log.frames_at(segment, np.array([start], np.int64), self._offset)
        return bool(frames.ok[0]) and int(frames.column("queue_offset")[0]) == int(
            rows.queue_offset[row]
        )
