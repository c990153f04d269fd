"""Units and slots: which unit is chained to which, and where a slot's chain begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.layout.timer import TIMER_LOG_UNIT, TIMER_MAGIC_DELETE
from store_core.read.timer_state import slot_times
from store_core.timer.timer_log import NO_UNIT
from store_core.timer.timer_wheel import Slot

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.timer.timer_log import TimerLog, Units
    from store_core.timer.timer_wheel import TimerWheel

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]


class _Chain(NamedTuple):
    """Units of one slot that were appended together: their rows, ascending."""

    time_ms: int
    rows: Int64s


def positions_from(position: int, count: int) -> Int64s:
    """Return where units lie that follow each other."""
    return position + TIMER_LOG_UNIT.size * np.arange(count, dtype=np.int64)


def append_units(log: TimerLog, wheel: TimerWheel, units: Units) -> None:
    """Append units and put them into their slots; `prev_pos` is set here.

    Raises
    ------
    StoreWriteError
        The units from some one on are not there, nor in the wheel.
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
    """Append units that no slot leads to: they say that their messages are done with."""
    units["prev_pos"] = NO_UNIT
    while len(units):
        part, units = np.split(units, [log.room()])
        log.append(part)


def put_again(wheel: TimerWheel, places: Int64s, units: Units) -> None:
    """Let slots know units that they may know already: recovery.

    RocketMQ leaves the counts of such slots as they are; here each unit is counted once.
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
