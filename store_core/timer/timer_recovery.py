"""Brings timer log and wheel together after a start, whoever wrote them and however it ended.

RocketMQ stops its wheel without flushing it, also when it stops cleanly: units that were appended
last are not in their slots. After a crash either may be behind the other.

Source: RocketMQ ``TimerMessageStore.recover``, ``recoverAndRevise``, ``TimerWheel.checkPhyPos``
(release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.layout.timer import TIMER_LOG_UNIT
from store_core.read.timer_state import slot_times
from store_core.timer.unit_chains import positions_from, put_again

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.read.timer_state import TimerProgress
    from store_core.timer.timer_log import TimerLog, Units
    from store_core.timer.timer_wheel import TimerWheel

    Int64s = npt.NDArray[np.int64]


class RecoveredUnits(NamedTuple):
    """What the timer log holds, near its end.

    Attributes
    ----------
    commit_log_offsets
        Records of its last units, in their order: at least of all that were appended since the
        checkpoint. Of units that say that a message was put, those that the checkpoint speaks of:
        what was put after it may be lost.
    is_cut
        Units are lost that the checkpoint speaks of.
    """

    commit_log_offsets: Int64s
    is_cut: bool


class LogEnds(NamedTuple):
    """Where the commit log ends, and where it ended when the store was opened."""

    now: int
    opened: int


def recover_units(
    log: TimerLog, wheel: TimerWheel, progress: TimerProgress, ends: LogEnds
) -> RecoveredUnits:
    """Cut the log behind its last sound unit, and let the slots from the read time on agree.

    A unit behind the checkpoint's position whose record was not there when the store was opened is
    not sound: a power failure has taken the record, and another may have its place by now.
    RocketMQ takes it for sound, and delivers what lies there.

    Raises
    ------
    StoreWriteError
        What is behind the end cannot be erased.
    """
    # As RocketMQ: one file before the position and all after it.
    begin = 0 if wheel.lacks_units else max(progress.log_pos - log.file_size, 0)
    end, found = 0, [np.empty(0, np.int64)]
    for start, units in log.runs_from(begin):
        sound = _sound_units(start, units, progress.log_pos, ends)
        is_known = slot_times(units[:sound]) >= progress.read_ms
        is_known |= positions_from(start, sound) < progress.log_pos
        found.append(units["commit_log_offset"][:sound][is_known].astype(np.int64))
        end = start + sound * TIMER_LOG_UNIT.size
        if sound < len(units):
            break
    log.cut(end)
    _revise(log, wheel, progress.read_ms, begin)
    return RecoveredUnits(np.concatenate(found), end < progress.log_pos)


def _sound_units(start: int, units: Units, log_pos: int, ends: LogEnds) -> int:
    places = positions_from(start, len(units))
    stops = units["commit_log_offset"].astype(np.int64) + units["message_size"]
    is_sound = stops <= np.where(places < log_pos, ends.now, ends.opened)
    return int(np.argmin(np.append(is_sound, False)))


def _revise(log: TimerLog, wheel: TimerWheel, read_ms: int, begin: int) -> None:
    """Put units into the slots that lack them, and take from slots those that are not there.

    Older slots stay as they are: nobody reads them, and a step of time later they may be those of
    another round of the wheel, which RocketMQ overwrites here.
    """
    dangling = wheel.times_behind(read_ms, log.end_pos)
    for time_ms in dangling:
        slot = wheel.slot(time_ms)
        begin = min(begin, begin if slot is None else slot.first_pos)
        wheel.clear(time_ms)
    for start, units in log.runs_from(begin):
        times = slot_times(units)
        rows = np.flatnonzero(times >= read_ms)
        put_again(wheel, positions_from(start, len(units))[rows], units[rows])
