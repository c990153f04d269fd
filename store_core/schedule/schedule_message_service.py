# SPDX-License-Identifier: Apache-2.0
"""Delivers the messages of the delay levels when they are due.

Source: RocketMQ ``ScheduleMessageService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.config.config_files import load_delay_offsets
from store_core.config.config_writing import require_delay_offsets, write_delay_offsets
from store_core.delivered_rows import DeliveredRows, delivered_rows
from store_core.errors import StoreFormatError
from store_core.files.file_writing import replace_file
from store_core.files.store_directory import StoreDirectory
from store_core.layout import SCHEDULE_TOPIC
from store_core.queue.consume_queue_ext import is_ext_address
from store_core.queue.readable_queue import SimpleQueue
from store_core.read.queue_records import frames_of_units, units_together
from store_core.results import PutMessageStatus
from store_core.services.service_thread import OnePerStore, ServiceThread

if TYPE_CHECKING:
    from store_core.message_store import MessageStore
    from store_core.queue.consume_queue import Units
    from store_core.read.pinned_store import PinnedStore
    from store_core.read.readable_store import ReadableStore
    from store_core.services.open_store import OpenStore

logger = logging.getLogger(__name__)
_INTERVAL_MS = 100
_FIRST_DELAY_MS = 1000
_MOST_UNITS = 1 << 14
_only = OnePerStore("delivers this store's delayed messages")
_ADVICE = "Without this file, all messages of the schedule topic would be delivered again"


class ScheduleMessageService(ServiceThread):
    """Delivers a store's delayed messages when they are due; a context manager starts and stops it.

    One queue offset per level records how far it is delivered; a level's messages are delivered in
    the order in which they were put. Due messages go to their real topics in columnar batches. A
    message is due when the clock reaches its store time plus its level's delay, or immediately if
    that time is further ahead than the delay, as after the clock was set back (RocketMQ's guard).

    Offsets are stored in ``config/delayOffset.json``: `start` reads and clamps them; they are saved
    every ``flushDelayOffsetInterval`` and by `shutdown`, after the log is forced to the disk. After
    a kill, messages delivered since the last save are delivered again, as by a broker.

    Parameters
    ----------
    store
        A started store. Stop this service before the store.
    clock
        Returns ms since the epoch; optional, default the store's clock.

    Attributes
    ----------
    delivered
        Messages put into their real topics since this object was created.
    skipped
        Units skipped because their record is missing, names no topic or queue, or names the half
        topic.
    refusals
        Level -> why the store refuses its next message. The service keeps retrying it, and the
        level waits meanwhile, as in RocketMQ.
    """

    repeats_while_busy = True

    def __init__(self, store: MessageStore, *, clock: Callable[[], int] | None = None) -> None:
        super().__init__(_INTERVAL_MS, first_delay_ms=_FIRST_DELAY_MS)
        self.delivered = self.skipped = 0
        self.refusals: dict[int, str] = {}
        self._store, self._clock = store, clock or store.clock
        self._offsets = DelayOffsets(store.config.store_path_root_dir)
        self._delays_ms = store.config.delay_levels_ms
        self._saved_at = time.monotonic()
        self._turn = threading.RLock()
        self._is_loaded = False
        self._loaded_for: OpenStore | None = None

    @property
    def offsets(self) -> dict[int, int]:
        """The next queue offset to deliver, by level; levels without messages may be missing."""
        return dict(self._offsets.table)

    def load(self) -> None:
        """Read ``config/delayOffset.json``; `start` and the first `run_once` call this.

        Messages delivered before this call whose offsets were not saved are delivered again.

        Raises
        ------
        StoreFormatError
            The file is not what a broker writes: restore it. If it is moved away instead,
            everything still in the schedule topic is delivered again.
        StoreClosedError
            The store is not open.
        """
        with self._turn:
            self._load(again=False)

    def start(self) -> None:
        """Load the offsets and start the thread; a second call does nothing.

        Raises
        ------
        StoreFormatError, StoreClosedError
            See `load`.
        StoreLockedError
            Another service already delivers this store's messages: each would arrive twice.
        """
        with _only.starting(self._store, self._store.config.store_path_root_dir, self):
            if self.is_running:
                return
            if not self._is_loaded:
                self.load()
            super().start()

    def run_once(self, now: int | None = None) -> bool:
        """Deliver the next batch of each level; return whether any level advanced.

        Parameters
        ----------
        now
            The time, ms since the epoch; optional, default the clock's.
        """
        with self._turn:
            if not self._is_loaded:
                self.load()
            elif self._loaded_for is not self._store.services:
                self._load(again=True)
            now = self._clock() if now is None else now
            failure: Exception | None = None
            was_busy = False
            for level, delay_ms in enumerate(self._delays_ms, 1):
                try:
                    was_busy |= self._deliver(level, delay_ms, now)
                except Exception as err:  # one level must not hold up the others
                    failure = failure or err
            rest_s = self._store.config.flush_delay_offset_interval / 1000
            if time.monotonic() - self._saved_at >= rest_s:
                self.save()
            if failure is not None:
                raise failure
            return was_busy

    def finish(self) -> None:
        """Save the offsets; the next run reads them again, as a broker may run in between."""
        self.save()
        self._is_loaded = False

    def save(self) -> None:
        """Force the log to the disk and write ``config/delayOffset.json``, if the offsets changed.

        Raises
        ------
        StoreClosedError
            The store is already closed: its files may belong to another process by now.
        StoreWriteError
            The log or the file cannot be written.
        """
        with self._turn:
            self._saved_at = time.monotonic()
            if self._is_loaded and self._offsets.is_changed:
                if self._loaded_for is not self._store.services:
                    self._load(again=True)
                self._store.flush()
                self._offsets.save(self._clock())

    def _load(self, *, again: bool) -> None:
        services = self._store.services
        with self._store.reading() as store:
            self._offsets.load(store, len(self._delays_ms), again=again)
            self._is_loaded, self._loaded_for = True, services

    def _deliver(self, level: int, delay_ms: int, now: int) -> bool:
        """Deliver the next messages of a level; return whether its offset moved."""
        found = self._next_due(level, delay_ms, now)
        if found is None:
            return False
        units, due = found
        first, done = self._offsets.table[level], 0
        refusal = ""
        if due is not None and len(due.rows):
            result = self._store.raw_append_batch(due.batch)
            refusal = f"{result.status.name}: {result.reason}"
            if result.row > 0:  # if one row is refused, none is put
                result = self._store.raw_append_batch(due.batch.slice(0, result.row))
            done = result.rows
            if done == len(due.rows):
                refusal = ""
            if result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT:  # in the log nevertheless
                logger.warning("delay level %d: %s", level, result.status.name)
        passed = units if due is None or done == len(due.rows) else int(due.rows[done])
        self._offsets.table[level] = first + passed
        self.delivered += done
        self.skipped += passed - done
        if passed > done:
            logger.warning("delay level %d: %d messages cannot be delivered", level, passed - done)
        self._note_refusal(level, refusal)
        return passed > 0

    def _note_refusal(self, level: int, refusal: str) -> None:
        if not refusal:
            self.refusals.pop(level, None)
        elif self.refusals.get(level) != refusal:
            self.refusals[level] = refusal
            logger.warning("delay level %d waits: its next message is refused: %s", level, refusal)

    def _next_due(
        self, level: int, delay_ms: int, now: int
    ) -> tuple[int, DeliveredRows | None] | None:
        """Return how many units of a level are due and their messages; None if nothing is due.

        One call covers one segment, and at most 4 MiB.
        """
        with self._store.reading() as store:
            queue = store.queue(SCHEDULE_TOPIC, level - 1)
            if not isinstance(queue, SimpleQueue):
                return None
            offset = self._offsets.table.get(level, 0)
            offset = self._offsets.table[level] = min(
                max(offset, queue.min_offset), queue.max_offset
            )
            # Usually the first message is not due yet, and one unit is enough to know that.
            if not _due_units(queue, offset, 1, store, delay_ms, now)[0]:
                return None
            due, units = _due_units(queue, offset, _MOST_UNITS, store, delay_ms, now)
            return due, _rows_of(units[:due], store)


def _due_units(
    queue: SimpleQueue, offset: int, most: int, store: PinnedStore, delay_ms: int, now: int
) -> tuple[int, Units]:
    """Return how many units from an offset on are due, and one batch of units from there on."""
    units = queue.unit_columns(offset, most)
    units = units[: units_together(units, store.log)]
    deliver_at = units["tags_code"].astype(np.int64)
    unresolved = np.flatnonzero(is_ext_address(deliver_at))
    if len(unresolved):  # their extension units are gone: use the times of their records
        frames = frames_of_units(units[unresolved], store.log)
        times = (
            None if frames is None else np.where(frames.ok, frames.column("store_timestamp"), -1)
        )
        deliver_at[unresolved] = delay_ms + (-1 if times is None else times)
    # RocketMQ's guard: a time further ahead than the delay comes from a different clock.
    is_due = (deliver_at <= now) | (deliver_at > now + delay_ms)
    return int(np.argmin(np.append(is_due, False))), units


def _rows_of(units: Units, store: PinnedStore) -> DeliveredRows | None:
    frames = frames_of_units(units, store.log)
    return None if frames is None else delivered_rows(frames)


# Source: RocketMQ ``ScheduleMessageService.load``, ``correctDelayOffset``, ``persist`` (release
# 5.3.3).
class DelayOffsets:
    """The next queue offset to deliver, by delay level; level 1 has queue 0.

    Attributes
    ----------
    table
        Level -> queue offset; a level is missing until it has been checked for due messages.
    """

    def __init__(self, root: str) -> None:
        self.table: dict[int, int] = {}
        self._root = root
        self._saved: dict[int, int] = {}

    @property
    def is_changed(self) -> bool:
        """Whether the table differs from the file."""
        return self.table != self._saved

    def load(self, store: ReadableStore, levels: int, *, again: bool = False) -> None:
        """Read the file and clamp each level's offset to the range of its queue.

        Without the file and its ``.bak``, every level starts at the first message its queue still
        has.

        Parameters
        ----------
        again
            The store was closed and reopened meanwhile. If the file still has the offsets last read
            or saved, no one else has delivered in between, and the table in memory stays valid.

        Raises
        ------
        StoreFormatError
            The file is not what a broker writes. RocketMQ would deliver everything again.
        StoreReadError
            A file cannot be read.
        """
        try:
            require_delay_offsets(self._root)
            found = load_delay_offsets(StoreDirectory(self._root)) or {}
        except StoreFormatError as err:
            raise StoreFormatError(f"{err.reason}. {_ADVICE}", err.path) from err
        if again and found == self._saved:
            found = self.table
        else:
            self._saved = dict(found)
        self.table = dict(found)
        for level in range(1, levels + 1):
            if level in found:
                queue = store.queue(SCHEDULE_TOPIC, level - 1)
                low, high = (queue.min_offset, queue.max_offset) if queue else (0, 0)
                self.table[level] = min(max(found[level], low), high)

    def save(self, now: int) -> None:
        """Write the file, whole or not at all; the previous one becomes ``.bak``.

        The delivered messages have to be on the disk before this call.

        Raises
        ------
        StoreFormatError
            The existing file is not what a broker writes.
        StoreWriteError
            The file cannot be written.
        """
        table = dict(self.table)
        write_delay_offsets(self._root, table, now, replace_file)
        self._saved = table
