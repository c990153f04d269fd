"""Messages of steps that were delivered already when the clock was set back before them.

Their slots are not read again, and a later slot would have them wait for as long as the clock was
ahead. They stay in the timer's topic, before the offset that the checkpoint names, until their step
is over; then they are put, and units without a slot say that they are done with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.read.unit_records import frames_of_units, units_together
from store_core.timer.enqueued_units import new_units
from store_core.timer.timed_rows import NEVER_ENQUEUED_MS, DueRecords, deleted_keys
from store_core.timer.unit_chains import append_without_slot

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.consume_queue import Units
    from store_core.read.pinned_store import PinnedStore
    from store_core.timer.due_putter import DuePutter
    from store_core.timer.enqueued_units import RollRule
    from store_core.timer.enqueuer import Times
    from store_core.timer.timer_log import TimerLog

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_NO_OFFSET = 2**63 - 1


class HeldBack:
    """The messages that wait so, a row each, in the order of the queue.

    Parameters
    ----------
    log
        Gets units of what was put.
    putter
        Gets the messages.
    roll
        For units; none of these rolls.
    """

    def __init__(self, log: TimerLog, putter: DuePutter, roll: RollRule) -> None:
        self._log, self._putter, self._roll = log, putter, roll
        self._units: list[Units] = []
        self._out_ms = self._queue_offsets = np.empty(0, np.int64)
        self._deletes = np.empty(0, np.bool_)

    @property
    def first_offset(self) -> int:
        """Queue offset of the first; larger than any if there is none."""
        return int(self._queue_offsets[0]) if len(self._queue_offsets) else _NO_OFFSET

    def add(self, units: Units, queue_offsets: Int64s, out_ms: Int64s, deletes: Bools) -> None:
        """Add messages, which lie behind those that are there.

        Parameters
        ----------
        units
            Of the queue.
        queue_offsets, out_ms, deletes
            Where they are in it, when they are due, and which of them delete others.
        """
        if len(units):
            self._units = [*self._units, units.copy()]
            self._queue_offsets = np.append(self._queue_offsets, queue_offsets)
            self._out_ms = np.append(self._out_ms, out_ms)
            self._deletes = np.append(self._deletes, deletes)

    def deliver(self, store: PinnedStore, times: Times) -> tuple[bool, bool]:
        """Put those whose step is over; return whether there were any, and whether all are put."""
        due = np.flatnonzero(self._out_ms < times.write_ms)
        if not len(due):
            return False, True
        units = np.concatenate(self._units)
        done = np.zeros(len(units), np.bool_)
        for step in np.unique(self._out_ms[due]).tolist():
            rows = np.flatnonzero(self._out_ms == step)
            count = self._put(store, units[rows], self._deletes[rows], step, times.now)
            done[rows[:count]] = True
            if count < len(rows):
                break
        self._keep(units, ~done)
        return bool(done.any()), bool(done[due].all())

    def _put(self, store: PinnedStore, units: Units, deletes: Bools, step: int, now: int) -> int:
        """Put the messages of one step; return how many are done with, from the first on."""
        deleted: set[str] = set()
        to_delete = units[deletes]
        while len(to_delete):
            together = units_together(to_delete, store.log)
            frames = frames_of_units(to_delete[:together], store.log)
            deleted |= set() if frames is None else deleted_keys(frames)
            to_delete = to_delete[together:]
        done = 0
        while done < len(units):
            part = units[done:]
            part = part[: units_together(part, store.log)]
            frames = frames_of_units(part, store.log)
            if frames is None:
                self._putter.passed_over += len(part)
                done += len(part)
                continue
            count = len(frames)
            written = np.full(count, NEVER_ENQUEUED_MS)
            put = self._putter.put(
                DueRecords(frames, written, np.zeros(count, np.bool_)), deleted, now
            )
            good = np.flatnonzero(frames.ok[:put])
            at = np.full(len(good), step)
            marks = new_units(frames.take(good), at, at, self._roll)
            append_without_slot(self._log, marks)
            done += put
            if put < count:
                break
        return done

    def _keep(self, units: Units, rows: Bools) -> None:
        self._units = [units[rows]]
        self._out_ms, self._queue_offsets = self._out_ms[rows], self._queue_offsets[rows]
        self._deletes = self._deletes[rows]
