"""Check all queues against the log: every record has its unit, every unit points at its record."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.gather import gather_binary
from store_core.config.config_files import is_deleted_topic
from store_core.queue.dispatch_request import DispatchDecoder, concat_requests
from store_core.queue.queue_directories import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    list_consume_queues,
)
from store_core.state.store_state import StoreState
from store_core.tools.check.batch_units import CheckedBatchQueue
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.queue_units import CheckedQueue, MissingRecords

if TYPE_CHECKING:
    from typing import Union

    from store_core.codec.record_frames import RecordFrames
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings
    from store_core.tools.check.log_check import LogCheck

    AnyQueue = Union[CheckedQueue, CheckedBatchQueue]

_HELD_ROWS = 1 << 19  # 30 MB of columns; so each queue is opened once in that many records
_BAD_UNIT_SIZE = 0


class QueueCheck:
    """Takes the log's records in order, then looks at what is left in the queues.

    Memory: half a million rows, a few numbers a queue, and of batch queues 62 bytes a unit.

    Parameters
    ----------
    snapshot
        The store.
    dispatched_end
        Records before it are in their queues, if all is well.
    log
        Knows the damaged parts of the log.
    """

    def __init__(
        self,
        snapshot: StoreSnapshot,
        dispatched_end: int,
        log: LogCheck,
        findings: Findings,
        counts: CheckCounts,
    ) -> None:
        self._snapshot, self._log = snapshot, log
        self._findings, self._counts = findings, counts
        self._dispatched_end = dispatched_end
        self._decoder = DispatchDecoder(snapshot.config.delay_levels_ms)
        self._in_files = not snapshot.kind.queue_database
        self._simple = self._simple_queues()
        batch = list_consume_queues(snapshot.directory, BATCH_CONSUME_QUEUE).queues
        self._batch = batch if self._in_files else {}
        self._ext = list_consume_queues(snapshot.directory, CONSUME_QUEUE_EXT).queues
        self._queues: dict[tuple[str, int, bool], AnyQueue] = {}
        self._lost: dict[tuple[str, int], MissingRecords] = {}
        self._held: list[DispatchRequests] = []
        self._first_matched: dict[str, int] = {}
        self._restarts: list[tuple[str, int, MissingRecords]] = []
        self._has_light = snapshot.has_light_queues
        self._configs = snapshot.topic_configs

    def _simple_queues(self) -> dict[tuple[str, int], str]:
        """Return those that are there now; of a database, those that it has."""
        if self._snapshot.queue_database is not None:
            return self._snapshot.queue_paths
        return list_consume_queues(self._snapshot.directory).queues if self._in_files else {}

    def check(self, frames: RecordFrames) -> None:
        """Check the records of a batch, now or a little later."""
        if not self._in_files:
            return
        requests = self._decoder.decode(frames).queued()
        if not self._has_light and requests.light.any():
            requests = requests.take(~requests.light)
        self._held.append(requests)
        if sum(map(len, self._held)) >= _HELD_ROWS:
            self._flush()

    def finish(self) -> None:
        """Check what is left: units that no record proved."""
        self._flush()
        for key in self._simple:
            self._queue(*key, light=True)
        for key in self._batch:
            self._queue(*key, light=False)
        for queue in self._queues.values():
            self._counts.queues += 1
            moved = 0
            for start, units in queue.unproved():
                moved += self._explain(queue, start, units)
            self._report_missing(queue, moved)
        for restart in self._restarts:
            self._report_restart(*restart)
        for lost in self._lost.items():
            self._report_lost_queue(*lost)

    def _flush(self) -> None:
        if not self._held:
            return
        rows = concat_requests(self._held)
        self._held = []
        for topic, queue_id, part in rows.by_queue():
            light = part.light
            if light.any() and not light.all():
                self._match(topic, queue_id, part.take(~light))
                part = part.take(light)  # noqa: PLW2901 (what is left of it)
            self._match(topic, queue_id, part)

    def _match(self, topic: str, queue_id: int, rows: DispatchRequests) -> None:
        queue = self._queue(topic, queue_id, light=bool(rows.light[0]))
        if queue is None:
            missing = self._lost.setdefault((topic, queue_id), MissingRecords())
            matched = np.zeros(len(rows), bool)
        else:
            missing = queue.missing
            matched = queue.match(rows)
            if not queue.is_known:
                return
        if matched.any():
            first = int(rows.commit_log_offset[np.argmax(matched)])
            self._first_matched[topic] = min(first, self._first_matched.get(topic, first))
        restart = np.flatnonzero(rows.queue_offset == 0)
        if len(restart) and (missing.count or restart[-1] > 0):
            begin = int(restart[-1])
            before = np.arange(len(rows)) < begin
            earlier = MissingRecords()
            earlier.take_over(missing)
            earlier.add(rows.take(before & ~matched))
            self._restarts.append((topic, queue_id, earlier))
            rows, matched = rows.take(~before), matched[~before]
        late = rows.commit_log_offset >= self._dispatched_end
        if not matched.all():
            self._not_dispatched(topic, queue_id, rows.take(late & ~matched))
            missing.add(rows.take(~late & ~matched))

    def _queue(self, topic: str, queue_id: int, *, light: bool) -> AnyQueue | None:
        key = (topic, queue_id)
        is_batch = key in self._batch and not (light and key in self._simple)
        known = self._queues.get((*key, is_batch))
        if known is not None:
            return known
        common = (self._findings, self._counts)
        queue: AnyQueue
        if is_batch:
            queue = CheckedBatchQueue(self._snapshot, key, self._batch[key], *common)
        elif key in self._simple:
            paths = (self._simple[key], self._ext.get(key))
            queue = CheckedQueue(self._snapshot, key, paths, *common)
        else:
            return None
        self._queues[(*key, is_batch)] = queue
        return queue

    def _not_dispatched(self, topic: str, queue_id: int, rows: DispatchRequests) -> None:
        if not len(rows):
            return
        stopped = self._snapshot.state is StoreState.STOPPED
        kind = FindingKind.RECORD_WITHOUT_UNIT if stopped else FindingKind.NOT_DISPATCHED
        first = int(rows.commit_log_offset[0])
        place = f"{topic}/{queue_id}" if stopped else ""
        text = [f"record at {first}, {topic}/{queue_id}"]
        self._findings.add(kind, place, commit_log_offset=first, count=len(rows), examples=text)

    def _earlier_life(self, place: str, missing: MissingRecords) -> None:
        self._findings.add(
            FindingKind.EARLIER_LIFE,
            place,
            commit_log_offset=missing.first,
            count=missing.count,
            examples=missing.examples,
        )

    def _report_restart(self, topic: str, queue_id: int, earlier: MissingRecords) -> None:
        """Say of records before a queue offset of 0 whether they are of an earlier life.

        Who deletes a topic deletes all its queues. Where one of them has a record from before,
        only this queue lost its files, and was numbered from 0 by the next put.
        """
        if not earlier.count:
            return
        if self._first_matched.get(topic, earlier.last) >= earlier.last:
            self._earlier_life(f"{topic}/{queue_id}", earlier)
            return
        self._findings.add(
            FindingKind.QUEUE_RESTARTED,
            f"{topic}/{queue_id}",
            commit_log_offset=earlier.first,
            count=earlier.count,
            examples=earlier.examples,
        )

    def _report_missing(self, queue: AnyQueue, moved: int) -> None:
        missing = queue.missing
        if not queue.is_known:
            return
        if missing.count > moved:
            self._findings.add(
                FindingKind.RECORD_WITHOUT_UNIT,
                queue.place,
                commit_log_offset=missing.first,
                count=missing.count - moved,
                examples=missing.examples,
            )

    def _report_lost_queue(self, key: tuple[str, int], missing: MissingRecords) -> None:
        topic, queue_id = key
        if is_deleted_topic(topic, self._configs):
            self._earlier_life(f"{topic}/{queue_id}", missing)
            return
        self._findings.add(
            FindingKind.QUEUE_MISSING,
            f"{topic}/{queue_id}",
            commit_log_offset=missing.first,
            count=missing.count,
            examples=missing.examples,
        )

    def _explain(self, queue: AnyQueue, start: int, units: Any) -> int:
        """Say why units are not proved; return how many are moved units of good records."""
        offset, size = units["commit_log_offset"], units["message_size"].astype(np.int64)
        numbers = start + np.arange(len(units))
        left = np.ones(len(units), bool)

        def note(kind: FindingKind | None, which: Any, reason: str = "") -> int:
            rows = np.flatnonzero(left & which)
            left[rows] = False
            if kind is not None and len(rows):
                self._note_units(queue, kind, units[rows], numbers[rows], reason)
            return len(rows)

        note(FindingKind.UNIT_EMPTY, (offset < 0) | (size <= _BAD_UNIT_SIZE))
        gone = offset < max(self._snapshot.min_phy_offset, 0)
        expired = gone & (numbers < queue.first_proved)
        self._counts.expired_units += note(None, expired)
        note(FindingKind.UNIT_WRONG, gone, "its record has expired, those before it have not")
        behind = offset + size > self._snapshot.end_offset
        note(self._kind_behind_end(), behind)
        note(FindingKind.UNIT_OF_LOST_RECORD, self._log.is_lost(offset))
        rows = np.flatnonzero(left)
        if not len(rows):
            return 0
        points_back = np.zeros(len(units), bool)
        points_back[rows] = self._points_back(queue.key, offset[rows], size[rows])
        moved = note(FindingKind.UNIT_MOVED, points_back)
        note(FindingKind.UNIT_WRONG, left.copy())
        return moved

    def _kind_behind_end(self) -> FindingKind | None:
        """Return what units after the end of the log are; None: a broker is writing."""
        if self._snapshot.state is StoreState.LIVE:
            return None
        if self._snapshot.lost_end is not None:
            return FindingKind.UNIT_OF_LOST_RECORD
        return FindingKind.UNIT_BEHIND_END

    def _note_units(
        self, queue: AnyQueue, kind: FindingKind, units: Any, numbers: Any, reason: str
    ) -> None:
        shown = zip(numbers[:5].tolist(), units["commit_log_offset"][:5], units["message_size"][:5])
        end = f": {reason}" if reason else ""
        self._findings.add(
            kind,
            queue.place,
            position=int(numbers[0]),
            commit_log_offset=int(units["commit_log_offset"][0]),
            count=len(numbers),
            examples=[f"{queue.unit_word} {n} -> {at}, {size} bytes{end}" for n, at, size in shown],
        )

    def _points_back(self, key: tuple[str, int], offsets: Any, sizes: Any) -> Any:
        """Return for units whether a record of their queue and size is where they point."""
        good = np.zeros(len(offsets), bool)
        log, end = self._snapshot.log, self._snapshot.end_offset
        order = np.argsort(offsets, kind="stable")
        at = 0
        while at < len(order):
            segment = log.segments.find(int(offsets[order[at]]))
            if segment is None:
                at += 1
                continue
            limit = segment.from_offset + log.segments.file_size
            stop = at + int(np.searchsorted(offsets[order[at:]], limit))
            rows = order[at:stop]
            distinct, which = np.unique(offsets[rows], return_inverse=True)
            frames = log.frames_at(segment, distinct, end)
            of_queue = _of_queue(frames, key)
            same_size = frames.column("total_size")[which] == sizes[rows]
            good[rows] = of_queue[which] & same_size
            at = stop
        return good


def _of_queue(frames: RecordFrames, key: tuple[str, int]) -> Any:
    result = np.zeros(len(frames), bool)
    rows = np.flatnonzero(frames.ok & (frames.column("queue_id") == key[1]))
    topic = os.fsencode(key[0])
    rows = rows[frames.topic_length[rows] == len(topic)]
    if len(rows):
        names = gather_binary(frames.data, frames.topic_start[rows], frames.topic_length[rows])
        same = pc.equal(names, pa.scalar(topic, pa.binary()))
        result[rows] = same.to_numpy(zero_copy_only=False)
    return result
