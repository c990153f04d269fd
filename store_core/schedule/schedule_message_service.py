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
_only = OnePerStore("delivers its delayed messages")
_ADVICE = "Without this file all that the schedule topic has would be delivered once more"


class ScheduleMessageService(ServiceThread):
    """Delivers what is due of a store's delay levels; a context manager that starts and stops it.

    One queue offset a level says what is delivered; a level's messages are delivered in the order
    in which they were put. What is due goes to its real topic in batches, in columns. A message is
    due at its store time and the delay of its level, by the clock; and at once where that lies
    further ahead than the delay, as when the clock was set back (RocketMQ's guard).

    Offsets are kept in ``config/delayOffset.json``: read and clamped by `start`, saved every
    ``flushDelayOffsetInterval`` and by `shutdown`, after the log was forced to the disk. After a
    kill the messages that were delivered since are delivered again, as by a broker.

    Parameters
    ----------
    store
        A started store. Stop this service before the store.
    clock
        Returns ms since the epoch; None: the store's.

    Attributes
    ----------
    delivered
        Messages that were put since it was made.
    skipped
        Units that were passed over: their record is missing, names no topic or queue, or names the
        half topic.
    refusals
        Level -> why its next message is not taken now. It is tried again and again, and the level
        stands meanwhile, as in RocketMQ.
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
        """Read ``config/delayOffset.json``; `start` and the first `run_once` do.

        What was delivered, and not saved, before this call is delivered again.

        Raises
        ------
        StoreFormatError
            The file is not what a broker writes: restore it. Moved away, everything that the
            schedule topic still has is delivered once more.
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
            Another service delivers the messages of this store: each would come twice.
        """
        with _only.starting(self._store, self._store.config.store_path_root_dir, self):
            if self.is_running:
                return
            if not self._is_loaded:
                self.load()
            super().start()

    def run_once(self, now: int | None = None) -> bool:
        """Deliver the next batch of each level; return whether there was any.

        Parameters
        ----------
        now
            The time, ms since the epoch; None: the clock's.
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
                except Exception as err:  # one level does not keep the others waiting
                    failure = failure or err
            rest_s = self._store.config.flush_delay_offset_interval / 1000
            if time.monotonic() - self._saved_at >= rest_s:
                self.save()
            if failure is not None:
                raise failure
            return was_busy

    def finish(self) -> None:
        """Save the offsets; whoever goes on reads them anew: a broker may come between."""
        self.save()
        self._is_loaded = False

    def save(self) -> None:
        """Force the log to the disk, then write ``config/delayOffset.json`` if it says less.

        Raises
        ------
        StoreClosedError
            The store was closed before: its files belong to whoever opens it next.
        StoreWriteError
            Something cannot be written.
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
        """Deliver the next messages of a level; return whether its offset has moved."""
        found = self._next_due(level, delay_ms, now)
        if found is None:
            return False
        units, due = found
        first, done = self._offsets.table[level], 0
        refusal = ""
        if due is not None and len(due.rows):
            result = self._store.raw_append_batch(due.batch)
            refusal = f"{result.status.name}: {result.reason}"
            if result.row > 0:  # none is put when one is refused
                result = self._store.raw_append_batch(due.batch.slice(0, result.row))
            done = result.rows
            if done == len(due.rows):
                refusal = ""
            if result.status is PutMessageStatus.FLUSH_DISK_TIMEOUT:  # in the log all the same
                logger.warning("level %d: %s", level, result.status.name)
        passed = units if due is None or done == len(due.rows) else int(due.rows[done])
        self._offsets.table[level] = first + passed
        self.delivered += done
        self.skipped += passed - done
        if passed > done:
            logger.warning("level %d: %d messages cannot be delivered", level, passed - done)
        self._note_refusal(level, refusal)
        return passed > 0

    def _note_refusal(self, level: int, refusal: str) -> None:
        if not refusal:
            self.refusals.pop(level, None)
        elif self.refusals.get(level) != refusal:
            self.refusals[level] = refusal
            logger.warning("level %d waits, its next message is refused: %s", level, refusal)

    def _next_due(
        self, level: int, delay_ms: int, now: int
    ) -> tuple[int, DeliveredRows | None] | None:
        """Return how many units of a level are due and their messages; None: nothing is due.

        Those of one segment, and of at most 4 MiB.
        """
        with self._store.reading() as store:
            queue = store.queue(SCHEDULE_TOPIC, level - 1)
            if not isinstance(queue, SimpleQueue):
                return None
            offset = self._offsets.table.get(level, 0)
            offset = self._offsets.table[level] = min(
                max(offset, queue.min_offset), queue.max_offset
            )
            # As a rule the first one is not due, and to know that takes one unit.
            if not _due_units(queue, offset, 1, store, delay_ms, now)[0]:
                return None
            due, units = _due_units(queue, offset, _MOST_UNITS, store, delay_ms, now)
            return due, _rows_of(units[:due], store)


def _due_units(
    queue: SimpleQueue, offset: int, most: int, store: PinnedStore, delay_ms: int, now: int
) -> tuple[int, Units]:
    """Return how many units from an offset on are due, and units of one batch from there on."""
    units = queue.unit_columns(offset, most)
    units = units[: units_together(units, store.log)]
    deliver_at = units["tags_code"].astype(np.int64)
    unresolved = np.flatnonzero(is_ext_address(deliver_at))
    if len(unresolved):  # its extension unit is gone: by the record, then
        frames = frames_of_units(units[unresolved], store.log)
        times = (
            None if frames is None else np.where(frames.ok, frames.column("store_timestamp"), -1)
        )
        deliver_at[unresolved] = delay_ms + (-1 if times is None else times)
    # RocketMQ's guard: what lies further ahead than the delay was put by another clock.
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
        Level -> queue offset; levels that were never looked at are missing.
    """

    def __init__(self, root: str) -> None:
        self.table: dict[int, int] = {}
        self._root = root
        self._saved: dict[int, int] = {}

    @property
    def is_changed(self) -> bool:
        """The file does not say this."""
        return self.table != self._saved

    def load(self, store: ReadableStore, levels: int, *, again: bool = False) -> None:
        """Read the file, and bring each level into the range of its queue.

        Without the file, and without its ``.bak``, every level begins with the first message that
        its queue still has.

        Parameters
        ----------
        again
            The store was closed and opened meanwhile. Where the file says what it said before,
            nobody has delivered between, and what is known here holds.

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
        """Write the file, whole or not at all; the one before becomes ``.bak``.

        What it says as delivered has to be on the disk before.

        Raises
        ------
        StoreFormatError
            The file that is there is not what a broker writes.
        StoreWriteError
            It cannot be written.
        """
        table = dict(self.table)
        write_delay_offsets(self._root, table, now, replace_file)
        self._saved = table
