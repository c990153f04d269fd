"""From records of the timer's topic to the units that stand for them.

Source: RocketMQ ``TimerMessageStore.doEnqueue``, ``hashTopicForMetrics`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.java_string import string_hashes
from store_core.codec.message_batch_codec import MessageColumns
from store_core.layout.message import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
)
from store_core.layout.timer import (
    TIMER_LOG_UNIT,
    TIMER_MAGIC_DEFAULT,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
)
from store_core.topics import numbers_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.timer.timer_log import Units

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_NO_TIME = -1


class RollRule:
    """Where messages wait that wait for too long: in a slot on the way.

    Parameters
    ----------
    steps
        From how many on.
    precision_ms
        Length of a step.
    """

    def __init__(self, steps: int, precision_ms: int) -> None:
        self.window_ms = steps * precision_ms
        self._near_ms = steps // 3 * precision_ms
        self._half_ms = steps // 2 * precision_ms

    def delays(self, wanted: Int64s) -> tuple[Int64s, Bools]:
        """Return how long messages wait that are to wait so long (ms), and which of them roll."""
        is_roll = wanted >= self.window_ms
        # One that hardly exceeds the window goes half of it, so that its last round is long enough.
        rolled = np.where(wanted - self.window_ms < self._near_ms, self._half_ms, self.window_ms)
        return np.where(is_roll, rolled, wanted), is_roll


def out_times(frames: RecordFrames) -> Int64s:
    """Return the step of each message (``TIMER_OUT_MS``); -1 of what is no record or names none.

    RocketMQ stands still at one without a number, unless ``timerSkipUnknownError`` is set.
    """
    times = np.full(len(frames), _NO_TIME, np.int64)
    rows = np.flatnonzero(frames.ok)
    if len(rows):
        texts = MessageColumns(frames.take(rows)).property_values(PROPERTY_TIMER_OUT_MS)
        times[rows] = numbers_of(texts, _NO_TIME)
    return times


def new_units(
    frames: RecordFrames, slot_ms: Int64s, write_ms: int | Int64s, roll: RollRule
) -> Units:
    """Return units that are chained to none yet.

    Parameters
    ----------
    frames
        Records that are ok.
    slot_ms
        Their times, not before ``write_ms``.
    write_ms
        The step that the clock shows; one of each, where they do not wait.
    """
    columns = MessageColumns(frames)
    delay, is_roll = roll.delays(slot_ms - write_ms)
    is_delete = columns.property_values(PROPERTY_TIMER_DEL_UNIQKEY).is_valid()
    units = np.zeros(len(frames), TIMER_LOG_UNIT.dtype)
    units["size"] = TIMER_LOG_UNIT.size
    units["magic"] = (
        TIMER_MAGIC_DEFAULT
        + TIMER_MAGIC_ROLL * is_roll
        + TIMER_MAGIC_DELETE * is_delete.to_numpy(zero_copy_only=False)
    )
    units["write_time"] = write_ms
    units["delay"] = delay
    units["commit_log_offset"] = frames.column("commit_log_offset")
    units["message_size"] = frames.column("total_size")
    units["topic_hash"] = string_hashes(columns.property_values(PROPERTY_REAL_TOPIC))
    return units
