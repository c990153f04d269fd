"""From the timer's topic into log and wheel.

Source: RocketMQ ``TimerMessageStore.enqueue``, ``TimerEnqueuePutService`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.queue.readable_queue import SimpleQueue
from store_core.read.unit_records import frames_of_units, units_together
from store_core.timer.enqueued_units import new_units, out_times
from store_core.timer.timed_rows import NEVER_ENQUEUED_MS, DueRecords
from store_core.timer.unit_chains import append_units
from store_core.topics import TIMER_TOPIC

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.queue.consume_queue import Units
    from store_core.read.pinned_store import PinnedStore
    from store_core.timer.due_putter import DuePutter
    from store_core.timer.enqueued_units import RollRule
    from store_core.timer.timer_files import TimerFiles

    Int64s = npt.NDArray[np.int64]

_MOST_UNITS = 1 << 14


class Times(NamedTuple):
    """The clock (ms), and the whole step that it shows."""

    now: int
    write_ms: int


class Enqueuer:
    """Reads the queue of the timer's topic from where it is.

    Parameters
    ----------
    files
        Get the units; their progress counts what is done.
    putter
        Gets messages that are due already.
    roll
        What becomes of those that are far ahead.
    """

    def __init__(self, files: TimerFiles, putter: DuePutter, roll: RollRule) -> None:
        self._files, self._putter, self._roll = files, putter, roll

    def enqueue_all(self, store: PinnedStore, times: Times) -> bool:
        """Enqueue what is in the queue; return whether there was anything.

        It ends early where a message that is due is refused.
        """
        queue = store.queue(TIMER_TOPIC, 0)
        if not isinstance(queue, SimpleQueue):
            return False
        begin = self._files.progress.queue_offset
        while self._enqueue_batch(store, queue, times):
            pass
        return self._files.progress.queue_offset != begin

    def _enqueue_batch(self, store: PinnedStore, queue: SimpleQueue, times: Times) -> bool:
        """Enqueue some messages; return whether to go on."""
        files = self._files
        offset = max(files.progress.queue_offset, queue.min_offset)
        if offset >= queue.max_offset:
            return False
        units = queue.unit_columns(offset, _MOST_UNITS)
        units = units[: units_together(units, store.log)]
        frames = frames_of_units(units, store.log)
        if frames is None:
            done = len(units)
            self._putter.passed_over += done
        else:
            done = self._enqueue_records(units, frames, times)
        files.progress = files.progress._replace(queue_offset=offset + done)
        return done == len(units)

    def _enqueue_records(self, units: Units, frames: RecordFrames, times: Times) -> int:
        """Enqueue records; return how many are done, from the first on."""
        out_ms = out_times(frames)
        is_known = np.isin(units["commit_log_offset"], self._files.enqueued)
        is_due = (out_ms >= 0) & (out_ms < times.write_ms) & ~is_known
        done = self._put_due(frames, np.flatnonzero(is_due), times)
        waits = ((out_ms >= times.write_ms) & ~is_known)[:done]
        self._append(frames, np.flatnonzero(waits), out_ms, times)
        self._putter.passed_over += int(np.count_nonzero(out_ms[:done] < 0))
        return done

    def _put_due(self, frames: RecordFrames, rows: Int64s, times: Times) -> int:
        """Put messages that are due already; return how many records are done with that."""
        if not len(rows):
            return len(frames)
        written, is_roll = np.full(len(rows), NEVER_ENQUEUED_MS), np.zeros(len(rows), bool)
        put = self._putter.put(DueRecords(frames.take(rows), written, is_roll), (), times.now)
        return len(frames) if put == len(rows) else int(rows[put])

    def _append(self, frames: RecordFrames, rows: Int64s, out_ms: Int64s, times: Times) -> None:
        if not len(rows):
            return
        # A slot that was read, as before the clock was set back, is not read again: RocketMQ loses
        # what it puts there. The next one is.
        slot_ms = np.maximum(out_ms[rows], self._files.progress.read_ms)
        units = new_units(frames.take(rows), slot_ms, times.write_ms, self._roll)
        append_units(self._files.log, self._files.wheel, units)
