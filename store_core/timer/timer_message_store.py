# SPDX-License-Identifier: Apache-2.0
"""Deliver messages at the times that they name.

Source: RocketMQ ``TimerMessageStore`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.database.message_database import timers_are_elsewhere
from store_core.errors import StoreConfigError, StoreKindError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import TIMER_MAGIC_DELETE, TIMER_MAGIC_ROLL
from store_core.read.queue_records import frames_of_units, units_together
from store_core.read.timer_state import slot_times
from store_core.services.service_thread import OnePerStore, ServiceThread
from store_core.timer.enqueuer import Enqueuer, Times
from store_core.timer.timed_rows import DuePutter, DueRecords, RollRule, deleted_keys
from store_core.timer.timer_files import TimerFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from store_core.codec.record_frames import RecordFrames
    from store_core.message_store import MessageStore
    from store_core.read.pinned_store import PinnedStore
    from store_core.services.open_store import OpenStore
    from store_core.timer.timer_log import Units

logger = logging.getLogger(__name__)
_INTERVAL_MS = 100
_CLEAN_INTERVAL_S = 30.0
_MAX_DELAY_MS = 2**31 - 1
_only = OnePerStore("delivers this store's timer messages")
_MOST_UNITS = 1 << 14


class TimerMessageStore(ServiceThread):
    """Delivers the timer messages of a store; a context manager that starts and stops it.

    Messages that name the time of their delivery wait in the topic ``rmq_sys_wheel_timer``. Each is
    enqueued from there: it gets a unit in ``timerlog/`` and a slot in the file ``timerwheel``. When
    the step of its slot is over, it is put to its real topic; never before the time that it names.
    A message that waits longer than ``timerRollWindowSlot`` is put to the timer's topic repeatedly.
    A message with property TIMER_DEL_UNIQKEY deletes another of the same step.

    ``config/timercheck`` stores the progress: `start` reads it; it is saved every
    ``timerFlushIntervalMs`` and by `shutdown`, after the log was forced to the disk. A broker can
    go on from there, and this service from a broker's files. After a kill, messages delivered since
    the last save are delivered again, as by a broker; but none is enqueued twice.

    If the broker of a store has its timers in RocksDB (``timerRocksDBEnable``), nothing is
    delivered: `refusal` gives the reason, and the store refuses timer messages.

    Parameters
    ----------
    store
        A started store, created with ``handle_timer_message``. Stop this service before the store.
    clock
        Returns ms since the epoch; the store's clock if None.

    Raises
    ------
    StoreConfigError
        ``timerRollWindowSlot`` steps do not fit the 32 bits of a unit's delay.
    """

    repeats_while_busy = True

    def __init__(self, store: MessageStore, *, clock: Callable[[], int] | None = None) -> None:
        config = store.config
        super().__init__(max(_INTERVAL_MS * config.timer_precision_ms // 1000, 1))
        self._store, self._clock = store, clock or store.clock
        self._precision_ms = config.timer_precision_ms
        self._putter = DuePutter(store)
        self._roll = RollRule(config.timer_roll_steps, self._precision_ms)
        if self._roll.window_ms > _MAX_DELAY_MS:
            raise StoreConfigError(
                f"timerRollWindowSlot {config.timer_roll_steps} x timerPrecisionMs "
                f"{self._precision_ms} is above {_MAX_DELAY_MS} ms: reduce one of them"
            )
        self._save_interval_s = config.timer_flush_interval_ms / 1000
        self._saved_at = self._cleaned_at = time.monotonic()
        self._turn = threading.RLock()
        self._files: TimerFiles | None = None
        self._loaded_for: OpenStore | None = None
        self._kept_elsewhere = ""

    @property
    def delivered(self) -> int:
        """Number of messages put to their topics so far; without those that roll."""
        return self._putter.delivered

    @property
    def rolled(self) -> int:
        """Number of messages put to the timer's topic again."""
        return self._putter.rolled

    @property
    def passed_over(self) -> int:
        """Number of messages that were skipped.

        They were deleted or delete others, have no record, topic, queue or time, or the store never
        takes them.
        """
        return self._putter.passed_over

    @property
    def refusal(self) -> str:
        """Why the store refuses the next message now; empty if it does not.

        It is tried repeatedly, and all others wait. RocketMQ gives up after three attempts, and
        loses it, unless ``timerEnableRetryUntilSuccess`` is set.
        """
        return self._kept_elsewhere or self._putter.refusal

    @property
    def read_ms(self) -> int:
        """Time before which all slots are delivered, ms since the epoch."""
        return self._loaded().progress.read_ms

    @property
    def queue_offset(self) -> int:
        """Queue offset of the next message to enqueue in the timer's topic."""
        return self._loaded().progress.queue_offset

    @property
    def waiting(self) -> int:
        """Number of messages enqueued and not delivered, by the slots' counts."""
        with self._turn:
            files = self._loaded()
            return files.wheel.count_from(files.progress.read_ms)

    def load(self) -> None:
        """Open and recover the timer's files; `start` and the first `run_once` call it.

        Messages delivered since the last save are delivered again.

        Raises
        ------
        StoreFormatError
            A file has another length than in RocketMQ.
        StoreReadError, StoreWriteError
            A file cannot be read or written.
        StoreClosedError
            The store is not open.
        """
        with self._turn:
            self._close_files()
            if self._is_kept_elsewhere():
                return
            services, files = self._store.services, TimerFiles(self._store.config)
            try:
                with self._store.reading() as store:
                    files.load(store, self._store.recovered_end, self._clock())
            except BaseException:
                files.close()
                raise
            self._files, self._loaded_for = files, services
            self._enqueuer = Enqueuer(files, self._putter, self._roll)
            self._slots = SlotDelivery(files, self._putter, self._precision_ms)
            self._store.use_timers(files.wheel.count_at)

    def start(self) -> None:
        """Load the files and start the thread; a second call does nothing.

        Raises
        ------
        StoreFormatError, StoreReadError, StoreWriteError, StoreClosedError
            See `load`.
        StoreLockedError
            Another service delivers the messages of this store: each would be delivered twice.
        """
        with _only.starting(self._store, self._store.config.store_path_root_dir, self):
            if self.is_running:
                return
            if self._files is None:
                self.load()
            if not self._kept_elsewhere:
                super().start()

    def run_once(self, now: int | None = None) -> bool:
        """Enqueue waiting messages, then deliver those due; return whether there was anything.

        Parameters
        ----------
        now
            The time, ms since the epoch; the clock's if None.
        """
        with self._turn:
            self._go_on()
            if self._kept_elsewhere:
                return False
            now = self._clock() if now is None else now
            times = Times(now, now // self._precision_ms * self._precision_ms)
            with self._store.reading() as store:
                was_busy = self._enqueuer.enqueue_all(store, times)
            with self._store.reading() as store:
                was_busy |= self._slots.deliver(store, times)
            if time.monotonic() - self._saved_at >= self._save_interval_s:
                self.save()
            if time.monotonic() - self._cleaned_at >= _CLEAN_INTERVAL_S:
                self.clean()
            return was_busy

    def finish(self) -> None:
        """Save and close the files; they are read again later, as a broker may change them."""
        with self._turn:
            try:
                self.save()
            finally:
                self._close_files()

    def save(self) -> None:
        """Force the log to the disk, then the timer's files, and last ``config/timercheck``.

        Raises
        ------
        StoreClosedError
            The store was closed before: its files belong to the next opener.
        StoreWriteError
            A file cannot be written.
        """
        with self._turn:
            self._saved_at = time.monotonic()
            files = self._files
            if files is None or not files.is_changed:
                return
            self._go_on()
            self._store.flush()
            files.save(self._clock())

    def clean(self) -> int:
        """Delete files of the timer log whose messages have expired; return how many."""
        with self._turn:
            self._cleaned_at = time.monotonic()
            return self._loaded().log.delete_expired(self._store.min_phy_offset)

    def _is_kept_elsewhere(self) -> bool:
        """Return whether the timers are in the store's database; then refuse timer messages."""
        directory = StoreDirectory(self._store.config.store_path_root_dir)
        self._kept_elsewhere = timers_are_elsewhere(directory)
        self._store.refuse_timers(self._kept_elsewhere)
        if self._kept_elsewhere:
            logger.warning("timer messages are not delivered: %s", self._kept_elsewhere)
        return bool(self._kept_elsewhere)

    def _loaded(self) -> TimerFiles:
        if self._files is None:
            self.load()
        if self._files is None:
            raise StoreKindError(self._kept_elsewhere, self._store.config.store_path_root_dir)
        return self._files

    def _close_files(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            self._store.use_timers(None)
            files.close()

    def _go_on(self) -> None:
        """Load the files if needed, also if the store was closed and another process went on."""
        if self._files is None:
            self.load()
        if self._files is None:
            return
        files, services = self._loaded(), self._store.services
        if self._loaded_for is not services:
            if files.is_as_saved():
                self._loaded_for = services
            else:
                self.load()


# Source: RocketMQ ``TimerMessageStore.dequeue``, ``TimerDequeueGetMessageService`` (release 5.3.3).
class _OpenSlot(NamedTuple):
    """A slot in delivery: its messages, the keys that others delete, how many are done."""

    time_ms: int
    units: Units
    deleted: Collection[str]
    done: int = 0


class SlotDelivery:
    """Delivers slot after slot; continues a slot that was begun."""

    def __init__(self, files: TimerFiles, putter: DuePutter, precision_ms: int) -> None:
        self._files, self._putter, self._precision_ms = files, putter, precision_ms
        self._slot: _OpenSlot | None = None

    def deliver(self, store: PinnedStore, times: Times) -> bool:
        """Deliver slots before ``write_ms``, up to `_MOST_UNITS` messages; return whether any."""
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
        # A slot from before a crash may point at units that were written since, of other times:
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
        """Deliver one batch of messages; return the slot afterwards, and the number tried."""
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
