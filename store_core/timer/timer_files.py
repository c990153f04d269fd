# SPDX-License-Identifier: Apache-2.0
"""The timer's three files: opened and recovered together, and saved in a safe order.

Source: RocketMQ ``TimerMessageStore.recover``, ``TimerFlushService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.errors import CorruptRecordError
from store_core.files.file_writing import RewrittenFile
from store_core.layout import (
    CONFIG_DIR,
    TIMER_BLANK_SLOTS,
    TIMER_CHECKPOINT,
    TIMER_CHECKPOINT_FILE,
    TIMER_CHECKPOINT_FILE_BYTES,
    TIMER_LOG_DIR,
    TIMER_LOG_UNIT,
    TIMER_WHEEL_FILE,
    TIMER_WHEEL_SLOTS,
)
from store_core.queue.readable_queue import SimpleQueue
from store_core.read.timer_state import TimerProgress, slot_times, timer_progress
from store_core.timer.timer_log import TimerLog
from store_core.timer.timer_wheel import TimerWheel, positions_from, relink_units
from store_core.topics import TIMER_TOPIC

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.read.pinned_store import PinnedStore
    from store_core.timer.timer_log import Units

    Int64s = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)


class TimerFiles:
    """Wheel, log and checkpoint of a store.

    Attributes
    ----------
    enqueued
        Starts of records, ascending, at or after ``progress.queue_offset``, that already have units
        in the log.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        root = Path(config.store_path_root_dir)
        self._precision_ms = config.timer_precision_ms
        self._roll_steps = config.timer_roll_steps
        self.wheel = TimerWheel(str(root / TIMER_WHEEL_FILE), self._precision_ms)
        self.log = TimerLog(str(root / TIMER_LOG_DIR), config.mapped_file_size_timer_log)
        self._checkpoint_path = str(root / CONFIG_DIR / TIMER_CHECKPOINT_FILE)
        self._checkpoint = TimerCheckpoint(self._checkpoint_path)
        self.progress = TimerProgress()
        self.enqueued: Int64s = np.empty(0, np.int64)

    def load(self, store: PinnedStore, opened_end: int, now: int) -> None:
        """Open and recover the files.

        Parameters
        ----------
        now
            ms since the epoch.

        Raises
        ------
        StoreFormatError
            A file has another length than in RocketMQ.
        StoreReadError, StoreWriteError
            A file cannot be read or written.
        """
        self._checkpoint.load()
        self.wheel.load()
        self.log.load()
        found = self._checkpoint.progress
        self.progress = found._replace(read_ms=max(found.read_ms, self._first_slot(now)))
        queue = store.queue(TIMER_TOPIC, 0)
        ends = LogEnds(store.end_offset, opened_end)
        units = recover_units(self.log, self.wheel, self.progress, ends)
        if isinstance(queue, SimpleQueue):
            self._find_queue_offset(store, queue, units)

    def is_as_saved(self) -> bool:
        """Return whether the checkpoint is as last read or saved here: no other process went on."""
        other = TimerCheckpoint(self._checkpoint_path)
        other.load()
        return other.progress == self._checkpoint.progress

    @property
    def is_changed(self) -> bool:
        """Whether anything is not saved."""
        saved = self._checkpoint.progress
        return self.progress._replace(log_pos=saved.log_pos) != saved or (
            self.log.end_pos > self.log.flushed_pos
        )

    def save(self, now: int) -> None:
        """Force units, then slots, to the disk, then write the checkpoint.

        Force the commit log first: it has the delivered messages, and the records of the units.

        Raises
        ------
        StoreWriteError
            A file cannot be written.
        """
        self.log.flush()
        self.wheel.flush()
        self.progress = self.progress._replace(log_pos=self.log.flushed_pos)
        self._checkpoint.save(self.progress, now)

    def close(self) -> None:
        """Close all files without saving."""
        self.wheel.close()
        self.log.close()
        self._checkpoint.close()

    def _first_slot(self, now: int) -> int:
        """Return the oldest time whose slot cannot have been reused for a later time.

        RocketMQ starts at a later one: a store that was stopped for a week loses messages there.
        """
        steps = TIMER_WHEEL_SLOTS - TIMER_BLANK_SLOTS - self._roll_steps
        return max(now // self._precision_ms - steps, 0) * self._precision_ms

    def _find_queue_offset(
        self, store: PinnedStore, queue: SimpleQueue, units: RecoveredUnits
    ) -> None:
        offset = self.progress.queue_offset
        if units.is_cut and len(units.commit_log_offsets):
            logger.warning("the timer log lacks units: their messages are enqueued again")
            offset = min(offset, _offset_behind(store, int(units.commit_log_offsets[-1]), offset))
        offset = min(max(offset, queue.min_offset), queue.max_offset)
        self.progress = self.progress._replace(queue_offset=offset)
        if offset < queue.max_offset:
            first = queue.commit_log_offset_of(offset)
            older = self._enqueued_before(first)
            known = np.concatenate([*older, units.commit_log_offsets])
            self.enqueued = np.unique(known[known >= first])

    def _enqueued_before(self, first: int) -> list[Int64s]:
        """Return records of older units, back to a file with none at or after ``first``."""
        position, found = self.progress.log_pos - self.log.file_size, []
        while position > 0:
            position = max(position - self.log.file_size, 0)
            _, units = next(self.log.runs_from(position))
            places = units["commit_log_offset"].astype(np.int64)
            if not (places >= first).any():
                break
            found.append(places)
        return found


def _offset_behind(store: PinnedStore, commit_log_offset: int, otherwise: int) -> int:
    """Return the queue offset after that of a record; ``otherwise`` if the record is corrupt."""
    try:
        return store.reader.read(commit_log_offset).queue_offset + 1
    except CorruptRecordError:
        return otherwise


# Source: RocketMQ ``TimerCheckpoint``, ``TimerMessageStore.prepareTimerCheckPoint``,
# ``DataVersion`` (release 5.3.3).
class TimerCheckpoint:
    """The checkpoint file and its content.

    Attributes
    ----------
    progress
        The content as last read or saved; all 0 without a file.
    """

    def __init__(self, path: str) -> None:
        self.progress = TimerProgress()
        self._file = RewrittenFile(path)
        self._state_version = self._timestamp = self._counter = 0

    def load(self) -> None:
        """Read the file; fields that a short file lacks are 0.

        Raises
        ------
        StoreReadError
            The file cannot be read.
        """
        data = self._file.read(TIMER_CHECKPOINT.size)
        row = TIMER_CHECKPOINT.unpack(data.ljust(TIMER_CHECKPOINT.size, b"\0"))
        self.progress = timer_progress(data)
        self._state_version, self._timestamp = row.state_version, row.timestamp
        self._counter = row.counter

    def save(self, progress: TimerProgress, now: int) -> None:
        """Write the progress and force it to the disk.

        The data version grows if more was read or enqueued, as in a broker.

        Raises
        ------
        StoreWriteError
            The file cannot be written.
        """
        if progress._replace(log_pos=self.progress.log_pos) != self.progress:
            self._timestamp, self._counter = now, self._counter + 1
        data = TIMER_CHECKPOINT.pack(
            last_read_time_ms=progress.read_ms,
            last_timer_log_flush_pos=progress.log_pos,
            last_timer_queue_offset=progress.queue_offset,
            master_timer_queue_offset=progress.queue_offset,
            state_version=self._state_version,
            timestamp=self._timestamp,
            counter=self._counter,
        )
        self._file.write(data.ljust(TIMER_CHECKPOINT_FILE_BYTES, b"\0"))
        self.progress = progress

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# RocketMQ does not flush its wheel when it stops, even cleanly: the last units are missing from
# their slots. After a crash either file may be older than the other.
#
# Source: RocketMQ ``TimerMessageStore.recover``, ``recoverAndRevise``, ``TimerWheel.checkPhyPos``
# (release 5.3.3).
class RecoveredUnits(NamedTuple):
    """The last units of the timer log.

    Attributes
    ----------
    commit_log_offsets
        Starts of their records, in log order, at least of all units since the checkpoint. Units
        that mark a message as put count only up to the checkpoint: messages put after it may be
        lost.
    """

    commit_log_offsets: Int64s
    is_cut: bool


class LogEnds(NamedTuple):
    """End of the commit log now, and when the store was opened."""

    now: int
    opened: int


def recover_units(
    log: TimerLog, wheel: TimerWheel, progress: TimerProgress, ends: LogEnds
) -> RecoveredUnits:
    """Cut the log after its last sound unit, and correct the slots from the read time on.

    A unit after the checkpoint's position is not sound if its record was not in the log when the
    store was opened: a power failure destroyed the record, and another may have its place by now.
    RocketMQ takes the unit for sound, and delivers the other record.

    Raises
    ------
    StoreWriteError
        The bytes after the end cannot be erased.
    """
    # As in RocketMQ: one file before the position and all after it.
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
    """Add units to slots that lack them, and rebuild slots that point past the log's end.

    Older slots stay unchanged: they are not read, and may soon be reused in the next round of the
    wheel, which RocketMQ overwrites here.
    """
    dangling = wheel.times_behind(read_ms, log.end_pos)
    for time_ms in dangling:
        slot = wheel.slot(time_ms)
        begin = min(begin, begin if slot is None else slot.first_pos)
        wheel.clear(time_ms)
    for start, units in log.runs_from(begin):
        times = slot_times(units)
        rows = np.flatnonzero(times >= read_ms)
        relink_units(wheel, positions_from(start, len(units))[rows], units[rows])
