"""From slots whose time is over to the topics of their messages.

Source: RocketMQ ``TimerMessageStore.dequeue``, ``TimerDequeueGetMessageService`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.layout.timer import TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL
from store_core.read.timer_state import slot_times
from store_core.read.unit_records import frames_of_units, units_together
from store_core.timer.timed_rows import DueRecords, deleted_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from store_core.codec.record_frames import RecordFrames
    from store_core.read.pinned_store import PinnedStore
    from store_core.timer.due_putter import DuePutter
    from store_core.timer.enqueuer import Times
    from store_core.timer.timer_files import TimerFiles
    from store_core.timer.timer_log import Units

_MOST_UNITS = 1 << 14


class _OpenSlot(NamedTuple):
    """A slot that is being delivered: its messages, those that others delete, how many are done."""

    time_ms: int
    units: Units
    deleted: Collection[str]
    done: int = 0


class SlotDelivery:
    """Delivers slot after slot; what was begun is remembered.

    Parameters
    ----------
    files
        Have the slots; their progress counts what is done.
    putter
        Gets the messages.
    precision_ms
        Length of a slot's step.
    """

    def __init__(self, files: TimerFiles, putter: DuePutter, precision_ms: int) -> None:
        self._files, self._putter, self._precision_ms = files, putter, precision_ms
        self._slot: _OpenSlot | None = None

    def deliver(self, store: PinnedStore, times: Times) -> bool:
        """Deliver the slots before ``write_ms``, at most so many messages; return whether any."""
        files, most = self._files, _MOST_UNITS
        for time_ms in files.wheel.times_between(files.progress.read_ms, times.write_ms):
            slot = self._slot or self._opened(time_ms, store)
            while slot.done < len(slot.units) and most > 0:
                slot, tried = self._deliver_some(slot, store, times.now)
                most -= tried
                if self._putter.refusal:
                    most = 0
            self._slot = slot if slot.done < len(slot.units) else None
            self._read_up_to(time_ms + self._precision_ms * (self._slot is None))
            if most <= 0:
                return not self._putter.refusal
        self._read_up_to(times.write_ms)
        return most < _MOST_UNITS

    def _read_up_to(self, time_ms: int) -> None:
        progress = self._files.progress
        self._files.progress = progress._replace(read_ms=max(progress.read_ms, time_ms))

    def _opened(self, time_ms: int, store: PinnedStore) -> _OpenSlot:
        found = self._files.wheel.slot(time_ms)
        assert found is not None
        units = self._files.log.chain(found.last_pos)
        # A slot of before a crash may name places where units of other times were written since:
        # those are in their own slots, too.
        units = units[slot_times(units) // self._precision_ms * self._precision_ms == time_ms]
        magic = units["magic"]
        deletes = (magic & TIMER_MAGIC_DELETE != 0) & (magic & TIMER_MAGIC_ROLL == 0)
        deleted: set[str] = set()
        for frames in _frames_of_all(units[deletes], store):
            deleted |= deleted_keys(frames)
        self._putter.passed_over += int(np.count_nonzero(deletes))
        return _OpenSlot(time_ms, units[~deletes], deleted)

    def _deliver_some(self, slot: _OpenSlot, store: PinnedStore, now: int) -> tuple[_OpenSlot, int]:
        """Deliver messages of one batch; return the slot as it is then, and how many there were."""
        units = slot.units[slot.done : slot.done + _MOST_UNITS]
        units = units[: units_together(units, store.log)]
        frames = frames_of_units(units, store.log)
        if frames is None:
            self._putter.passed_over += len(units)
            done = len(units)
        else:
            is_roll = units["magic"] & TIMER_MAGIC_ROLL != 0
            due = DueRecords(frames, units["write_time"].astype(np.int64), is_roll)
            done = self._putter.put(due, slot.deleted, now)
        return slot._replace(done=slot.done + done), len(units)


def _frames_of_all(units: Units, store: PinnedStore) -> Iterator[RecordFrames]:
    while len(units):
        together = units_together(units, store.log)
        frames = frames_of_units(units[:together], store.log)
        if frames is not None:
            yield frames
        units = units[together:]
