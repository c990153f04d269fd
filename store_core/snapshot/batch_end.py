# SPDX-License-Identifier: Apache-2.0
"""How far a follower of a live store may read: written, dispatched or flushed records.

A record is *written* when it is whole in the log, *dispatched* when its queue has its unit (from
then on a consumer can get it), and *flushed* when the checkpoint proves that it is on the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.log.commit_log import last_begun_by, scan_frames, scan_log
from store_core.log.log_scan import Gap, skip_gap
from store_core.queue.dispatch_request import ROUND_BYTES, DispatchDecoder
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.snapshot.store_snapshot import StoreSnapshot

    States = npt.NDArray[np.int8]

_DISPATCHED, _NEVER_QUEUED, _UNKNOWN, _WAITING = 3, 2, 1, 0
"""The queue has the unit; the record gets none; there is no such queue; the queue ends before it.
"""
_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)


def dispatched_end(snapshot: StoreSnapshot, floor: int) -> int:
    """Return the end of the run of dispatched records that begins at ``floor``.

    The run includes damage, and records whose queue has no directory (any more, or yet), if a
    dispatched record follows them: RocketMQ dispatches in log order.

    Returns
    -------
    int
        The start of a record or the end of the log; at least ``floor``.
    """
    end = written_end(snapshot, floor)
    if snapshot.state is StoreState.STOPPED or floor >= end:
        return end  # a clean stop leaves nothing undispatched
    proved = snapshot.dispatched_offset() if end - floor > ROUND_BYTES else floor
    run = _Run(snapshot, floor if proved <= floor else -1)
    for part in scan_log(snapshot.log, max(proved, floor), end):
        if isinstance(part, Gap):
            run.pass_unknown(part.commit_log_offset)
        elif not run.add(part):
            break
    else:
        run.finish(end)
    return max(run.end, floor)


def written_end(snapshot: StoreSnapshot, floor: int) -> int:
    """Return the end of the last record that is whole in the log.

    A killed process can leave half a record, which the next one to open the store cuts off. After a
    clean stop, damage at the end was once a whole record: it is included, and reading it fails.
    """
    if snapshot.state is StoreState.STOPPED:
        return max(snapshot.end_offset, floor)
    return max(snapshot.tail_offset, floor)


def flushed_end(snapshot: StoreSnapshot, floor: int) -> int:
    """Return the end of the run of records that the checkpoint proves to be on the disk.

    The checkpoint has the store time of the last flushed record, which later records may share, so
    only records with an earlier time count. After a clean stop all records are flushed.
    """
    end = written_end(snapshot, floor)
    if snapshot.state is StoreState.STOPPED or floor >= end:
        return end
    flushed_ms = (snapshot.checkpoint.physic_msg_timestamp if snapshot.checkpoint else 0) or 0
    begin = max(floor, last_begun_by(snapshot.log, end, flushed_ms - 1))
    for frames in scan_frames(snapshot.log, begin, end, on_gap=skip_gap):
        late = np.flatnonzero(frames.column("store_timestamp") >= flushed_ms)
        if len(late):
            return max(int(frames.column("commit_log_offset")[late[0]]), floor)
    return end


class _Run:
    """The run so far, which ends at ``end``; ``_passing`` is set while undecided records follow."""

    def __init__(self, snapshot: StoreSnapshot, end: int) -> None:
        self.end = end
        self._snapshot = snapshot
        self._decoder = DispatchDecoder(())
        self._newest: dict[tuple[str, int], int | None] = {}
        self._passing = False

    def pass_unknown(self, offset: int) -> None:
        """Note damage at an offset; it joins the run if a dispatched record follows."""
        self.end = offset if self.end < 0 else self.end
        self._passing = True

    def add(self, frames: RecordFrames) -> bool:
        """Add the next records; return whether the run may continue."""
        start, size = frames.column("commit_log_offset"), frames.column("total_size")
        self.end = int(start[0]) if self.end < 0 else self.end
        states = self._states(frames)
        waiting = np.flatnonzero(states == _WAITING)
        stop = int(waiting[0]) if len(waiting) else len(states)
        dispatched = np.flatnonzero(states[:stop] == _DISPATCHED)
        at = 0
        if len(dispatched):
            at = int(dispatched[-1]) + 1
            self._passing = False
        if not self._passing:
            unknown = np.flatnonzero(states[at:stop] == _UNKNOWN)
            at = at + int(unknown[0]) if len(unknown) else stop
            self._passing = at < stop
        if at:
            self.end = int(start[at - 1]) + int(size[at - 1])
        return stop == len(states)

    def finish(self, end: int) -> None:
        """Extend the run to the end of the log, unless undecided records precede it."""
        if not self._passing:
            self.end = end

    def _states(self, frames: RecordFrames) -> States:
        states = np.full(len(frames), _NEVER_QUEUED, np.int8)
        queued = self._decoder.outline(frames).queued()
        for topic, queue_id, rows in queued.by_queue():
            newest = self._newest_of(topic, queue_id)
            at = np.searchsorted(frames.column("commit_log_offset"), rows.commit_log_offset)
            if newest is None:
                states[at] = _UNKNOWN
            else:
                has_unit = rows.commit_log_offset <= newest
                states[at] = np.where(has_unit, _DISPATCHED, _WAITING)
        return states

    def _newest_of(self, topic: str, queue_id: int) -> int | None:
        """Return the start of a queue's newest record; -1 if it is empty, None if unknown."""
        key = (topic, queue_id)
        if key not in self._newest:
            try:
                self._newest[key] = newest_record(self._snapshot, topic, queue_id)
            except _DAMAGED:
                self._newest[key] = None
        return self._newest[key]


def newest_record(snapshot: StoreSnapshot, topic: str, queue_id: int) -> int | None:
    """Return the start of a queue's newest record; -1 if it is empty, None if there is no queue."""
    queue = snapshot.queue(topic, queue_id)
    if queue is None:
        return None
    return queue.commit_log_offset_of(queue.max_offset - 1) if queue.max_offset > 0 else -1
