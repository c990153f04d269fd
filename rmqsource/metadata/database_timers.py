"""What became of messages whose timers a broker keeps in RocksDB (``timerRocksDBEnable``).

A timer is known there by its time and its UNIQ_KEY, whatever its topic: a message that cancels
another names it so, and one that is put again before its time takes the place of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.arrow import pa, pc
from store_core.read.key_set import KeySet

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.database.message_database import DatabaseTimers

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_SEPARATOR = "+"


class TimerStates(NamedTuple):
    """States of some messages, a row each; in none of them: delivered."""

    is_cancelled: Bools
    is_pending: Bools
    is_rolled: Bools


class DatabaseStates:
    """Compares messages of the timer's topic with the timers of a database.

    Parameters
    ----------
    timers
        Those of the database.
    cancelled
        Which timers are cancelled, as `timer_names` returns them.
    """

    def __init__(self, timers: DatabaseTimers, cancelled: Array) -> None:
        self._queue_offset, self._read_ms = timers.queue_offset, timers.read_ms
        self._places = np.sort(timers.commit_log_offset)
        keys = pa.array(timers.unique_keys, pa.binary()).cast(pa.string(), safe=False)
        self._names = KeySet(timer_names(timers.times_ms, keys))
        self._cancelled = KeySet(cancelled)

    def of(
        self, queue_offset: Int64s, commit_log_offset: Int64s, out_ms: Int64s, unique_key: Array
    ) -> TimerStates:
        """Return the states of messages with these columns."""
        names = timer_names(out_ms, unique_key)
        held = np.isin(commit_log_offset, self._places)
        is_new = queue_offset >= self._queue_offset
        is_delivered = held & (out_ms < self._read_ms)
        is_cancelled = self._cancelled.contains(names) & ~is_delivered
        is_pending = (held | is_new) & ~is_delivered & ~is_cancelled
        is_rolled = self._names.contains(names) & ~held & ~is_new & ~is_cancelled
        return TimerStates(is_cancelled, is_pending, is_rolled)


def timer_names(times_ms: Int64s, unique_keys: Array) -> Array:
    """Return by what the database knows timers; null without a key."""
    times = pa.array(times_ms).cast(pa.string())
    return pc.binary_join_element_wise(times, unique_keys, _SEPARATOR)


def cancelled_names(times_ms: Int64s, delete_keys: Array) -> Array:
    """Return what messages cancel, of their times and properties TIMER_DEL_UNIQKEY.

    The topic before the first ``+`` is not compared.
    """
    unique_keys = pc.replace_substring_regex(delete_keys, r"^[^+]*\+", "")
    return timer_names(times_ms, unique_keys)
