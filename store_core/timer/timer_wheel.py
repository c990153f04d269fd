# SPDX-License-Identifier: Apache-2.0
"""The ``timerwheel`` file: the positions of each time step's units in the timer log.

Source: RocketMQ ``TimerWheel``, ``Slot`` (release 5.3.3).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.files.file_writing import (
    create_file,
    data_extents,
    flush_directory,
    open_file,
    sync_data,
    write_all,
    write_errors,
)
from store_core.layout import (
    TIMER_LOG_UNIT,
    TIMER_MAGIC_DELETE,
    TIMER_SLOT,
    TIMER_WHEEL_SLOTS,
    wheel_snapshot,
)
from store_core.read.timer_state import slot_times
from store_core.timer.timer_log import NO_UNIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.timer.timer_log import TimerLog, Units

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_FILE_BYTES = TIMER_WHEEL_SLOTS * TIMER_SLOT.size
_MOST_WAITING = 2**31 - 1
_PAGE_SLOTS = 4096 // TIMER_SLOT.size
_FEW_STEPS = 1 << 12


class Slot(NamedTuple):
    """One step of time."""

    first_pos: int
    last_pos: int
    waiting: int


class TimerWheel:
    """Slots by time: a slot belongs to one step until a later step replaces it.

    The wheel is in memory, without its empty parts; RocketMQ maps the file, and has a copy besides.
    Slots reach the file only by `flush`, after the units: a slot that points at a missing unit
    would deliver others. Nothing is written through a map, where a full disk ends the process.

    Not safe for several threads, except `count_at`.
    """

    def __init__(self, path: str, precision_ms: int) -> None:
        self._path, self._precision_ms = path, precision_ms
        self._fd, self.lacks_units = -1, False
        self._slots = np.zeros(TIMER_WHEEL_SLOTS, TIMER_SLOT.dtype)
        self._changed: set[int] = set()
        self._is_blank = True

    def load(self) -> None:
        """Open or create the file.

        Raises
        ------
        StoreFormatError
            The file has another length: RocketMQ would not start either.
        StoreWriteError
            The file cannot be opened, read or created.
        """
        with write_errors(self._path):
            path = Path(self._path)
            is_there = path.exists()
            beside = path.absolute().parent.glob(f"{path.name}.*")
            has_snapshots = any(wheel_snapshot(each.name) is not None for each in beside)
            self.lacks_units = not is_there or has_snapshots
            if is_there:
                self._fd = open_file(self._path, _FILE_BYTES)
            else:
                self._fd = create_file(self._path, _FILE_BYTES)
                flush_directory(str(Path(self._path).absolute().parent))
            content = memoryview(self._slots.view(np.uint8))
            for start, stop in data_extents(self._fd, _FILE_BYTES):
                content[start:stop] = os.pread(self._fd, stop - start, start)
                self._is_blank = False

    def slot(self, time_ms: int) -> Slot | None:
        """Return the slot of a time; None if there is none."""
        found = self._slots[self._index(time_ms)]
        if int(found["time"]) != time_ms // self._precision_ms:
            return None
        return Slot(int(found["first_pos"]), int(found["last_pos"]), int(found["count"]))

    def count_at(self, time_ms: int) -> int:
        """Return how many messages wait for a time."""
        slot = self.slot(time_ms)
        return 0 if slot is None else slot.waiting

    def count_from(self, time_ms: int) -> int:
        """Return how many messages wait for a time or a later one."""
        return int(self._slots["count"][self._slots["time"] >= time_ms // self._precision_ms].sum())

    def put(self, time_ms: int, slot: Slot) -> None:
        """Set the slot of a time, replacing any other."""
        at = self._index(time_ms)
        waiting = max(min(slot.waiting, _MOST_WAITING), -_MOST_WAITING)
        self._slots[at] = (time_ms // self._precision_ms, slot.first_pos, slot.last_pos, waiting, 0)
        self._changed.add(at)
        self._is_blank = False

    def clear(self, time_ms: int) -> None:
        """Empty the slot of a time."""
        at = self._index(time_ms)
        self._slots[at] = (0, 0, 0, 0, 0)
        self._changed.add(at)

    def times_between(self, from_ms: int, to_ms: int) -> list[int]:
        """Return the times in ``[from_ms, to_ms)`` that have a slot, ascending."""
        step = self._precision_ms
        first, stop = from_ms // step, to_ms // step
        if stop - first <= _FEW_STEPS:  # usually, except at the start
            steps = np.arange(first, stop)
            found = steps[self._slots["time"][steps % TIMER_WHEEL_SLOTS] == steps]
        else:
            found = self._times(first, stop)
        return [int(time) * step for time in found]

    def times_behind(self, from_ms: int, end_pos: int) -> list[int]:
        """Return the times from one on whose slots point at or past a position of the timer log."""
        times = self._times(from_ms // self._precision_ms, np.iinfo(np.int64).max)
        kept = self._slots["last_pos"][times % TIMER_WHEEL_SLOTS] >= end_pos
        return [int(time) * self._precision_ms for time in times[kept]]

    def flush(self) -> None:
        """Write the changed slots and force them to the disk.

        Raises
        ------
        StoreWriteError
            The file cannot be written.
        """
        if not self._changed:
            return
        content = memoryview(self._slots.view(np.uint8))
        with write_errors(self._path):
            for page in sorted({at // _PAGE_SLOTS for at in self._changed}):
                start = page * _PAGE_SLOTS * TIMER_SLOT.size
                stop = min(start + _PAGE_SLOTS * TIMER_SLOT.size, _FILE_BYTES)
                write_all(self._fd, start, content[start:stop])
            sync_data(self._fd)
        self._changed.clear()

    def close(self) -> None:
        """Close the file without flushing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):  # everything needed was forced to the disk before
                os.close(fd)

    def _index(self, time_ms: int) -> int:
        return time_ms // self._precision_ms % TIMER_WHEEL_SLOTS

    def _times(self, first: int, stop: int) -> Int64s:
        """Return the steps in a range that have a slot, ascending."""
        if self._is_blank:  # most wheels: no need to search them
            return np.empty(0, np.int64)
        times: npt.NDArray[Any] = self._slots["time"]
        at = np.flatnonzero((times >= max(first, 1)) & (times < stop))
        found: Int64s = times[at].astype(np.int64)
        return np.sort(found[found % TIMER_WHEEL_SLOTS == at])  # others are never found


class _Chain(NamedTuple):
    """Units of one slot that were appended together: their rows, ascending."""

    time_ms: int
    rows: Int64s


def positions_from(position: int, count: int) -> Int64s:
    """Return the positions of consecutive units."""
    return position + TIMER_LOG_UNIT.size * np.arange(count, dtype=np.int64)


def append_units(log: TimerLog, wheel: TimerWheel, units: Units) -> None:
    """Append units and add them to their slots; sets ``prev_pos``.

    Raises
    ------
    StoreWriteError
        The units from some position on are missing in both log and wheel.
    """
    while len(units):
        part, units = np.split(units, [log.room()])
        places = positions_from(log.end_pos, len(part))
        slots: dict[int, Slot] = {}
        for chain in _chains(slot_times(part)):
            before = wheel.slot(chain.time_ms)
            last_pos = NO_UNIT if before is None else before.last_pos
            part["prev_pos"][chain.rows] = [last_pos, *places[chain.rows[:-1]]]
            slots[chain.time_ms] = _extended(before, places[chain.rows], part[chain.rows])
        log.append(part)
        for time_ms, slot in slots.items():
            wheel.put(time_ms, slot)


def append_without_slot(log: TimerLog, units: Units) -> None:
    """Append units without a slot: they mark their messages as done."""
    units["prev_pos"] = NO_UNIT
    while len(units):
        part, units = np.split(units, [log.room()])
        log.append(part)


def relink_units(wheel: TimerWheel, places: Int64s, units: Units) -> None:
    """Add units to slots that may have them already (recovery).

    RocketMQ does not change the counts of such slots; here each unit is counted once.
    """
    for chain in _chains(slot_times(units)):
        before = wheel.slot(chain.time_ms)
        known = -1 if before is None else before.last_pos
        rows = chain.rows[places[chain.rows] > known]
        if len(rows):
            wheel.put(chain.time_ms, _extended(before, places[rows], units[rows]))


def _extended(before: Slot | None, places: Int64s, units: Units) -> Slot:
    deleting = int(np.count_nonzero(units["magic"] & TIMER_MAGIC_DELETE))
    count = len(units) - 2 * deleting
    if before is None:
        return Slot(int(places[0]), int(places[-1]), count)
    return Slot(before.first_pos, int(places[-1]), before.waiting + count)


def _chains(times: Int64s) -> Iterator[_Chain]:
    """Yield the rows of each time."""
    order = np.argsort(times, kind="stable")
    ordered = times[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: len(times)]) + 1
    begin = 0
    for end in ends.tolist():
        yield _Chain(int(ordered[begin]), order[begin:end])
        begin = end
