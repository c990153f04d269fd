# SPDX-License-Identifier: Apache-2.0
"""Table ``timers``: one row per message that waits or waited in the timer of a 5.x broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.metadata.columns import NO_TIME, nullable, table_part
from rmqsource.metadata.damage import skip_damaged
from rmqsource.scan.read_columns import columns_of_snapshot
from store_core.arrow import pa, pc
from store_core.database.message_database import load_database_timers
from store_core.layout import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    TIMER_MAGIC_DELETE,
    TIMER_MAGIC_ROLL,
)
from store_core.read.key_match import KeySet
from store_core.read.timer_state import TimerProgress, load_timer_progress, load_timer_units
from store_core.topics import REAL_QUEUE_ID, REAL_TOPIC, TIMER_TOPIC, numbers_of, property_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Array, Columns, Table
    from store_core.database.message_database import DatabaseTimers
    from store_core.read.timer_state import TimerUnits
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

PENDING, DELIVERED, CANCELLED = "pending", "delivered", "cancelled"
ROLLED, UNKNOWN = "rolled", "unknown"
_COLUMNS = (
    *("queue_offset", "commit_log_offset", "unique_key", "keys", "properties"),
    *("reconsume_times", "store_timestamp"),
)
_NO_NUMBER = -1
_SEPARATOR = "+"  # between real topic and unique key in a message that cancels another
_KEY_SEPARATOR = "+"


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the messages of ``rmq_sys_wheel_timer``, except those that cancel others.

    A unit of the timer log names the slot in which a message waits; ``config/timercheck`` says
    which slots are delivered and up to where the topic is enqueued. Deliveries that the file does
    not yet record, because a broker runs or was killed, are *pending*: a broker delivers those
    messages (again) when it starts. Without the file all messages are pending. A message that waits
    longer than the wheel's span is enqueued again: its record is *rolled*, and a new record
    continues. With ``timerRocksDBEnable`` the database decides the state of messages without a
    unit.
    """
    timer = _Timer(snapshot, options)
    yield from (timer.part(batch) for batch in timer.records())


class _Units(NamedTuple):
    """Data of the timer log for some records; ``held`` marks records that have a unit."""

    held: Bools
    slot_ms: Int64s
    is_roll: Bools


class _Timer:
    """The timer's files, read before the records: later records count as not enqueued."""

    def __init__(self, snapshot: StoreSnapshot, options: SourceOptions) -> None:
        self._snapshot, self._options = snapshot, options
        self._progress = TimerProgress()
        with skip_damaged("config/timercheck", options):
            self._progress = load_timer_progress(snapshot.directory) or TimerProgress()
        self._offsets = np.empty(0, np.int64)
        self._slots = np.empty(0, np.int64)
        self._magic = np.empty(0, np.int64)
        with skip_damaged("timerlog", options):
            self._take(load_timer_units(snapshot.directory))
        timers = None
        with skip_damaged("rocksdbstore", options):
            timers = load_database_timers(snapshot.directory)
        self._has_database = timers is not None
        self._cancels_slot, self._cancels_next, cancelled = self._cancelling()
        self._database = None if timers is None else DatabaseStates(timers, cancelled)

    def records(self) -> Iterator[Columns]:
        selection = {"topics": (TIMER_TOPIC,)}
        return columns_of_snapshot(self._snapshot, self._options, _COLUMNS, **selection)

    def part(self, batch: Columns) -> Table:
        """Return the rows of some records."""
        cancels = property_of(batch["properties"], PROPERTY_TIMER_DEL_UNIQKEY).is_valid()
        if pc.any(cancels).as_py():
            batch = {name: column.filter(pc.invert(cancels)) for name, column in batch.items()}
        properties = batch["properties"]
        out_ms = numbers_of(property_of(properties, PROPERTY_TIMER_OUT_MS), _NO_NUMBER)
        real_topic = property_of(properties, REAL_TOPIC)
        real_queue = numbers_of(property_of(properties, REAL_QUEUE_ID))
        rolls = numbers_of(property_of(properties, PROPERTY_TIMER_ROLL_TIMES), 0)
        return table_part(
            "timers",
            self._snapshot.directory.uri,
            len(out_ms),
            queue_offset=batch["queue_offset"],
            commit_log_offset=batch["commit_log_offset"],
            unique_key=batch["unique_key"],
            keys=batch["keys"],
            real_topic=real_topic,
            real_queue_id=nullable(real_queue.astype(np.int32), real_queue < 0),
            reconsume_times=batch["reconsume_times"],
            roll_times=rolls.astype(np.int32),
            store_timestamp=batch["store_timestamp"],
            deliver_timestamp=np.where(out_ms < 0, NO_TIME, out_ms),
            state=pa.array(self._states(batch, out_ms, real_topic).tolist(), pa.string()),
        )

    def _states(self, batch: Columns, out_ms: Int64s, real_topic: Array) -> npt.NDArray[np.str_]:
        units = self._units_of(batch["commit_log_offset"].to_numpy())
        is_new = batch["queue_offset"].to_numpy() >= self._progress.queue_offset
        is_over = np.where(units.held, units.slot_ms, out_ms) < self._progress.read_ms
        # Without a unit: the message was due when enqueued, or its unit has expired with its file.
        is_delivered = np.where(units.held, ~units.is_roll, ~is_new) & is_over
        is_pending = np.where(units.held, ~is_over, is_new)
        names = pc.binary_join_element_wise(real_topic, batch["unique_key"], _SEPARATOR)
        by_slot = self._cancels_slot.contains(_of_time(units.slot_ms, names))
        by_next = self._cancels_next.contains(_of_time(out_ms, names))
        is_cancelled = (units.held & ~units.is_roll & by_slot) | (is_pending & by_next)
        is_rolled = units.held & units.is_roll & is_over
        if self._database is not None:
            found = self._database.compare(
                batch["queue_offset"].to_numpy(),
                batch["commit_log_offset"].to_numpy(),
                out_ms,
                batch["unique_key"],
            )
            is_cancelled = np.where(units.held, is_cancelled, found.is_cancelled)
            is_pending = np.where(units.held, is_pending, found.is_pending)
            is_rolled = np.where(units.held, is_rolled, found.is_rolled)
            is_delivered |= ~units.held & ~is_rolled
        return np.select(
            [is_cancelled, is_pending, is_delivered, is_rolled],
            [CANCELLED, PENDING, DELIVERED, ROLLED],
            UNKNOWN,
        )

    def _take(self, found: TimerUnits) -> None:
        """Store the last unit of each record, in the order of the records in the log."""
        offsets = found.units["commit_log_offset"].astype(np.int64)
        order = np.argsort(offsets, kind="stable")
        last = np.append(np.diff(offsets[order]) != 0, True)[: len(order)]
        order = order[last]
        self._offsets, self._slots = offsets[order], found.slot_ms[order]
        self._magic = found.units["magic"][order].astype(np.int64)

    def _units_of(self, commit_log_offset: Int64s) -> _Units:
        if not len(self._offsets):
            none = np.zeros(len(commit_log_offset), bool)
            return _Units(none, np.zeros(len(commit_log_offset), np.int64), none)
        at = np.searchsorted(self._offsets, commit_log_offset)
        at = np.minimum(at, len(self._offsets) - 1)
        held = self._offsets[at] == commit_log_offset
        return _Units(held, self._slots[at], self._magic[at] & TIMER_MAGIC_ROLL != 0)

    def _cancelling(self) -> tuple[KeySet, KeySet, Array]:
        """Return the names that are cancelled in a slot, for a future time, and in the database."""
        in_slot, to_come, in_database = ([pa.array([], pa.string())] for _ in range(3))
        for batch in self.records() if self._may_cancel() else ():
            names = property_of(batch["properties"], PROPERTY_TIMER_DEL_UNIQKEY)
            rows = np.flatnonzero(names.is_valid().to_numpy(zero_copy_only=False))
            properties = batch["properties"].take(pa.array(rows))
            names = names.take(pa.array(rows))
            out_ms = numbers_of(property_of(properties, PROPERTY_TIMER_OUT_MS), _NO_NUMBER)
            units = self._units_of(batch["commit_log_offset"].to_numpy()[rows])
            is_new = batch["queue_offset"].to_numpy()[rows] >= self._progress.queue_offset
            waits = units.held & ~units.is_roll
            goes_on = units.held & units.is_roll & (units.slot_ms >= self._progress.read_ms)
            in_slot.append(_of_time(units.slot_ms, names).filter(pa.array(waits)))
            to_come.append(_of_time(out_ms, names).filter(pa.array(goes_on | is_new & ~waits)))
            in_database.append(cancelled_names(out_ms, names))
        cancelled = pa.concat_arrays(in_database)
        return KeySet(pa.concat_arrays(in_slot)), KeySet(pa.concat_arrays(to_come)), cancelled

    def _may_cancel(self) -> bool:
        """Return whether a unit cancels a message, or messages without a unit yet may."""
        if self._has_database:
            return True
        held = self._snapshot.queue_range(TIMER_TOPIC, 0)
        is_all = held.max_offset <= self._progress.queue_offset
        return bool((self._magic & TIMER_MAGIC_DELETE).any()) or not is_all


def _of_time(time_ms: Int64s, names: Array) -> Array:
    """Return the times of messages joined with their names; null without a name."""
    times = pa.array(time_ms).cast(pa.string())
    return pc.binary_join_element_wise(times, names, _SEPARATOR)


# The database identifies a timer by its time and UNIQ_KEY, whatever its topic: a message that
# cancels another names it that way, and one put again before its time replaces the first.
class TimerStates(NamedTuple):
    """States of some messages, row by row; a message in none of them was delivered."""

    is_cancelled: Bools
    is_pending: Bools
    is_rolled: Bools


class DatabaseStates:
    """Compares messages of the timer's topic with the timers of a database."""

    def __init__(self, timers: DatabaseTimers, cancelled: Array) -> None:
        self._queue_offset, self._read_ms = timers.queue_offset, timers.read_ms
        self._places = np.sort(timers.commit_log_offset)
        keys = pa.array(timers.unique_keys, pa.binary()).cast(pa.string(), safe=False)
        self._names = KeySet(timer_names(timers.times_ms, keys))
        self._cancelled = KeySet(cancelled)

    def compare(
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
    """Return the names by which the database identifies timers; null without a key."""
    times = pa.array(times_ms).cast(pa.string())
    return pc.binary_join_element_wise(times, unique_keys, _KEY_SEPARATOR)


def cancelled_names(times_ms: Int64s, delete_keys: Array) -> Array:
    """Return the names of cancelled timers, from the cancelling messages' TIMER_DEL_UNIQKEY.

    The topic before the first ``+`` is not compared.
    """
    unique_keys = pc.replace_substring_regex(delete_keys, r"^[^+]*\+", "")
    return timer_names(times_ms, unique_keys)
