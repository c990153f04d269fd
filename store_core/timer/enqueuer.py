# SPDX-License-Identifier: Apache-2.0
"""Move messages from the timer's topic into log and wheel.

Source: RocketMQ ``TimerMessageStore.enqueue``, ``TimerEnqueuePutService`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.layout import PROPERTY_TIMER_DEL_UNIQKEY
from store_core.queue.readable_queue import SimpleQueue
from store_core.read.queue_records import frames_of_units, units_together
from store_core.timer.timed_rows import (
    NEVER_ENQUEUED_MS,
    DueRecords,
    deleted_keys,
    new_units,
    out_times,
)
from store_core.timer.timer_wheel import append_units, append_without_slot
from store_core.topics import TIMER_TOPIC

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.queue.consume_queue import Units
    from store_core.read.pinned_store import PinnedStore
    from store_core.timer.timed_rows import DuePutter, RollRule
    from store_core.timer.timer_files import TimerFiles
    from store_core.timer.timer_log import TimerLog

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_MOST_UNITS = 1 << 14
_NO_OFFSET = 2**63 - 1


class Times(NamedTuple):
    """The time, and the start of its step; ms since the epoch."""

    now: int
    write_ms: int


class Enqueuer:
    """Reads the queue of the timer's topic, from the stored progress on."""

    def __init__(self, files: TimerFiles, putter: DuePutter, roll: RollRule) -> None:
        self._files, self._putter, self._roll = files, putter, roll
        self._held = HeldBack(files.log, putter, roll)
        self._next_offset = files.progress.queue_offset

    def enqueue_all(self, store: PinnedStore, times: Times) -> bool:
        """Enqueue the messages in the queue; return whether there was anything to do.

        It ends early if a message that is due is refused.
        """
        queue = store.queue(TIMER_TOPIC, 0)
        if not isinstance(queue, SimpleQueue):
            return False
        begin = self._next_offset
        was_busy, is_taken = self._held.deliver(store, times)
        while is_taken and self._enqueue_batch(store, queue, times):
            pass
        offset = min(self._next_offset, self._held.first_offset)
        self._files.progress = self._files.progress._replace(queue_offset=offset)
        return was_busy or self._next_offset != begin

    def _enqueue_batch(self, store: PinnedStore, queue: SimpleQueue, times: Times) -> bool:
        """Enqueue some messages; return whether to go on."""
        offset = max(self._next_offset, queue.min_offset)
        if offset >= queue.max_offset:
            return False
        units = queue.unit_columns(offset, _MOST_UNITS)
        units = units[: units_together(units, store.log)]
        frames = frames_of_units(units, store.log)
        if frames is None:
            done = len(units)
            self._putter.passed_over += done
        else:
            done = self._enqueue_records(offset, units, frames, times)
        self._next_offset = offset + done
        return done == len(units)

    def _enqueue_records(
        self, offset: int, units: Units, frames: RecordFrames, times: Times
    ) -> int:
        """Enqueue records; return how many are done, counted from the first."""
        out_ms = out_times(frames)
        is_known = np.isin(units["commit_log_offset"], self._files.enqueued)
        is_due = (out_ms >= 0) & (out_ms < times.write_ms) & ~is_known
        done = self._put_due(frames, np.flatnonzero(is_due), times)
        waits = ((out_ms >= times.write_ms) & ~is_known)[:done]
        # A slot that was read before the clock was set back is not read again: RocketMQ loses
        # messages that it puts there.
        is_read = out_ms[:done] < self._files.progress.read_ms
        self._hold_back(frames, np.flatnonzero(waits & is_read), offset, units, out_ms)
        self._mark(frames, np.flatnonzero(is_due[:done] & frames.ok[:done]), offset, out_ms)
        self._append(frames, np.flatnonzero(waits & ~is_read), out_ms, times)
        self._putter.passed_over += int(np.count_nonzero(out_ms[:done] < 0))
        return done

    def _put_due(self, frames: RecordFrames, rows: Int64s, times: Times) -> int:
        """Put the messages that are already due; return how many records are done then."""
        if not len(rows):
            return len(frames)
        written, is_roll = np.full(len(rows), NEVER_ENQUEUED_MS), np.zeros(len(rows), bool)
        put = self._putter.put(DueRecords(frames.take(rows), written, is_roll), (), times.now)
        return len(frames) if put == len(rows) else int(rows[put])

    def _hold_back(
        self, frames: RecordFrames, rows: Int64s, offset: int, units: Units, out_ms: Int64s
    ) -> None:
        if len(rows):
            deletes = MessageColumns(frames.take(rows)).property_values(PROPERTY_TIMER_DEL_UNIQKEY)
            is_delete = deletes.is_valid().to_numpy(zero_copy_only=False)
            self._held.add(units[rows], offset + rows, out_ms[rows], is_delete)

    def _mark(self, frames: RecordFrames, rows: Int64s, offset: int, out_ms: Int64s) -> None:
        """Mark messages that were put immediately as done, by units without a slot.

        Only those that the stored queue offset does not pass, as others in `HeldBack` precede them.
        """
        rows = rows[offset + rows > self._held.first_offset]
        if len(rows):
            times = out_ms[rows]
            marks = new_units(frames.take(rows), times, times, self._roll)
            append_without_slot(self._files.log, marks)

    def _append(self, frames: RecordFrames, rows: Int64s, out_ms: Int64s, times: Times) -> None:
        if not len(rows):
            return
        units = new_units(frames.take(rows), out_ms[rows], times.write_ms, self._roll)
        append_units(self._files.log, self._files.wheel, units)


# Their slots are not read again, and in a later slot they would wait for as long as the clock was
# ahead. They wait in the timer's topic, and the checkpoint's queue offset stays before them, until
# their step is over; then they are put, and units without a slot mark them as done.
class HeldBack:
    """Messages whose slot was read before the clock was set back; one row each, in queue order."""

    def __init__(self, log: TimerLog, putter: DuePutter, roll: RollRule) -> None:
        self._log, self._putter, self._roll = log, putter, roll
        self._units: list[Units] = []
        self._out_ms = self._queue_offsets = np.empty(0, np.int64)
        self._deletes = np.empty(0, np.bool_)

    @property
    def first_offset(self) -> int:
        """Queue offset of the first message; larger than any if there is none."""
        return int(self._queue_offsets[0]) if len(self._queue_offsets) else _NO_OFFSET

    def add(self, units: Units, queue_offsets: Int64s, out_ms: Int64s, deletes: Bools) -> None:
        """Add messages that follow the present ones in the queue."""
        if len(units):
            self._units = [*self._units, units.copy()]
            self._queue_offsets = np.append(self._queue_offsets, queue_offsets)
            self._out_ms = np.append(self._out_ms, out_ms)
            self._deletes = np.append(self._deletes, deletes)

    def deliver(self, store: PinnedStore, times: Times) -> tuple[bool, bool]:
        """Put the messages whose step is over; return whether any is done, and whether all are."""
        due = np.flatnonzero(self._out_ms < times.write_ms)
        if not len(due):
            return False, True
        units = np.concatenate(self._units)
        done = np.zeros(len(units), np.bool_)
        for step in np.unique(self._out_ms[due]).tolist():
            rows = np.flatnonzero(self._out_ms == step)
            count = self._put(store, units[rows], self._deletes[rows], step, times.now)
            done[rows[:count]] = True
            if count < len(rows):
                break
        self._keep(units, ~done)
        return bool(done.any()), bool(done[due].all())

    def _put(self, store: PinnedStore, units: Units, deletes: Bools, step: int, now: int) -> int:
        """Put the messages of one step; return how many are done, counted from the first."""
        deleted: set[str] = set()
        to_delete = units[deletes]
        while len(to_delete):
            together = units_together(to_delete, store.log)
            frames = frames_of_units(to_delete[:together], store.log)
            deleted |= set() if frames is None else deleted_keys(frames)
            to_delete = to_delete[together:]
        done = 0
        while done < len(units):
            part = units[done:]
            part = part[: units_together(part, store.log)]
            frames = frames_of_units(part, store.log)
            if frames is None:
                self._putter.passed_over += len(part)
                done += len(part)
                continue
            count = len(frames)
            written = np.full(count, NEVER_ENQUEUED_MS)
            put = self._putter.put(
                DueRecords(frames, written, np.zeros(count, np.bool_)), deleted, now
            )
            good = np.flatnonzero(frames.ok[:put])
            at = np.full(len(good), step)
            marks = new_units(frames.take(good), at, at, self._roll)
            append_without_slot(self._log, marks)
            done += put
            if put < count:
                break
        return done

    def _keep(self, units: Units, rows: Bools) -> None:
        self._units = [units[rows]]
        self._out_ms, self._queue_offsets = self._out_ms[rows], self._queue_offsets[rows]
        self._deletes = self._deletes[rows]
