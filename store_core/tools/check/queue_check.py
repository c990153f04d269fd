# SPDX-License-Identifier: Apache-2.0
"""Check all queues against the log: every record has its unit, every unit points at its record."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.codec.java_string import decode_utf8
from store_core.codec.record_frames import are_of_topic
from store_core.config.config_files import is_deleted_topic
from store_core.layout import NOT_QUEUED_BIT
from store_core.queue.dispatch_request import DispatchDecoder, concat_requests
from store_core.queue.queue_directories import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    is_directory_name,
    list_consume_queues,
)
from store_core.state.store_state import StoreState
from store_core.tools.check.expected_offsets import ExpectedOffsets
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.queue_units import CheckedBatchQueue, CheckedQueue, MissingRecords

if TYPE_CHECKING:
    from typing import Union

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings
    from store_core.tools.check.log_check import LogCheck

    AnyQueue = Union[CheckedQueue, CheckedBatchQueue]
    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

_HELD_ROWS = 1 << 19  # 30 MB of columns; each queue is opened once per this many records
_BAD_UNIT_SIZE = 0
_ODD_PLACES = 1 << 20  # about so many records that are out of place are remembered: 8 MB


class QueueCheck:
    """Checks the log's records in order, then the units that are left in the queues.

    Memory: half a million rows, a few numbers a queue, and 62 bytes a unit of batch queues.
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
        self._expected: dict[tuple[str, int, bool], ExpectedOffsets] = {}
        self._odd_places: list[npt.NDArray[np.int64]] = []
        self._held: list[DispatchRequests] = []
        self._first_matched: dict[str, int] = {}
        self._restarts: list[tuple[str, int, MissingRecords]] = []
        self._has_light = snapshot.has_light_queues
        self._configs = snapshot.topic_configs

    def _simple_queues(self) -> dict[tuple[str, int], str]:
        """Return the queues that exist now; in a database, those of the snapshot."""
        if self._snapshot.queue_database is not None:
            return self._snapshot.queue_paths
        return list_consume_queues(self._snapshot.directory).queues if self._in_files else {}

    def check(self, frames: RecordFrames) -> None:
        """Check the records of a batch, now or in a later call."""
        if not self._in_files:
            return
        decoded = self._decoder.decode(frames)
        self._report_unqueued(decoded.wrongly_unqueued())
        requests = decoded.queued()
        if not self._has_light and requests.light.any():
            requests = requests.take(~requests.light)
        self._held.append(requests)
        if sum(map(len, self._held)) >= _HELD_ROWS:
            self._flush()

    def _report_unqueued(self, requests: DispatchRequests) -> None:
        for topic, queue_id, rows in requests.by_queue():
            starts, numbers = rows.commit_log_offset.tolist(), rows.queue_offset.tolist()
            self._findings.add(
                FindingKind.NOT_QUEUED,
                f"{topic}/{queue_id}",
                commit_log_offset=starts[0],
                count=len(starts),
                examples=[f"record at {at}, queue offset {n}" for at, n in zip(starts, numbers)],
            )

    def finish(self) -> None:
        """Check the units that no record proved, and report missing records."""
        self._flush()
        for key in self._simple:
            self._queue(*key, light=True)
        for key in self._batch:
            self._queue(*key, light=False)
        for queue in self._queues.values():
            self._counts.queues += 1
            if isinstance(queue, CheckedBatchQueue):
                queue.check_order()
            moved = 0
            for start, units in queue.unproved():
                moved += self._explain(queue, start, units)
            self._report_missing(queue, moved)
        for restart in self._restarts:
            self._report_restart(*restart)
        for lost in self._lost.items():
            self._report_lost_queue(*lost)
        for named, expected in self._expected.items():
            self._report_offsets(f"{named[0]}/{named[1]}", expected)

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
        place = (topic, queue_id, bool(rows.light[0]))
        expected = self._expected.setdefault(place, ExpectedOffsets())
        is_batch = isinstance(queue, CheckedBatchQueue)
        from_zero = self._snapshot.min_phy_offset == 0 and not self._log.lost
        believed, placed = expected.take(rows, from_zero=from_zero)
        if queue is None:
            missing = self._lost.setdefault((topic, queue_id), MissingRecords())
            matched = np.zeros(len(rows), bool)
        else:
            missing = queue.missing
            matched = queue.match(replace(rows, base_queue_offset=believed))
            if not queue.is_known:
                return
        if matched.any():
            first = int(rows.commit_log_offset[np.argmax(matched)])
            self._first_matched[topic] = min(first, self._first_matched.get(topic, first))
        begin = _begin_of_life(believed, rows.batch_size.astype(np.int64), matched)
        if begin is not None and (missing.count or begin > 0):
            missing.add(rows.take(np.flatnonzero(~matched[:begin])))
            self._begin_again((topic, queue_id), missing, is_one=begin == len(rows) - 1)
            rows, matched = rows.take(slice(begin, None)), matched[begin:]
            expected.begin_again()
            believed, placed = expected.take(rows, from_zero=True)
        if is_batch:
            expected.belied.add(rows.take(believed != rows.base_queue_offset))
        else:
            matched |= self._match_elsewhere(queue, rows, matched, expected, (believed, placed))
        late = rows.commit_log_offset >= self._dispatched_end
        if not matched.all():
            self._not_dispatched(topic, queue_id, rows.take(late & ~matched))
            missing.add(rows.take(~late & ~matched))

    def _match_elsewhere(
        self,
        queue: AnyQueue | None,
        rows: DispatchRequests,
        matched: Bools,
        expected: ExpectedOffsets,
        offsets: tuple[Int64s, Int64s],
    ) -> Bools:
        """Return which other records have a unit, but not at the queue offset they say."""
        believed, placed = offsets
        found = np.zeros(len(rows), bool)
        if (placed == rows.queue_offset).all():
            expected.confirm_place()
            return found
        stands = matched & (rows.queue_offset == placed)
        for wanted in offsets:
            left = np.flatnonzero(~matched & ~found & (wanted != rows.queue_offset))
            if queue is not None and len(left):
                good = left[queue.match(replace(rows.take(left), queue_offset=wanted[left]))]
                found[good] = True
                stands[good] |= wanted[good] == placed[good]
        belied = ~matched & (believed != rows.queue_offset)
        expected.belied.add(rows.take(belied))
        kept = np.flatnonzero(~belied)
        expected.note(rows.take(kept), placed[kept], stands[kept])
        if sum(map(len, self._odd_places)) < _ODD_PLACES:
            self._odd_places.append(rows.commit_log_offset[placed != rows.queue_offset])
        return found

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

    def _report_offsets(self, place: str, expected: ExpectedOffsets) -> None:
        """Report records that are out of place, and whether a rebuild would move some."""
        if expected.is_last_alone(has_gaps=bool(self._log.lost)):
            expected.belied.absorb(expected.shifted)
            expected.moving = 0
        if expected.moving:
            self._findings.rebuild_flags.add("--accept-moved")
        for kind, records in (
            (FindingKind.QUEUE_OFFSET, expected.belied),
            (FindingKind.UNIT_SHIFTED, expected.shifted),
        ):
            self._findings.add(
                kind,
                place,
                commit_log_offset=records.first,
                count=records.count,
                examples=records.examples,
            )

    def _begin_again(self, key: tuple[str, int], missing: MissingRecords, *, is_one: bool) -> None:
        """Set aside the missing records from before a queue began at 0 again, for `finish`."""
        earlier = MissingRecords()
        earlier.take_over(missing)
        self._restarts.append((*key, earlier))
        # A rebuilt queue would begin there; if it is the last record, the queue would continue.
        self._findings.rebuild_flags.add("--accept-moved" if is_one else "--accept-lost")

    def _earlier_life(self, place: str, missing: MissingRecords) -> None:
        self._findings.add(
            FindingKind.EARLIER_LIFE,
            place,
            commit_log_offset=missing.first,
            count=missing.count,
            examples=missing.examples,
        )

    def _report_restart(self, topic: str, queue_id: int, earlier: MissingRecords) -> None:
        """Report records from before a restart at 0: the topic was deleted, or the queue was lost.

        Deleting a topic deletes all its queues. If one of them still has a record from before, only
        this queue lost its files, and the next put numbered it from 0.
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
        if queue_id < 0 or not is_directory_name(topic):
            kind = FindingKind.QUEUE_IMPOSSIBLE
            self._findings.add(
                kind,
                f"{topic}/{queue_id}",
                commit_log_offset=missing.first,
                count=missing.count,
                examples=missing.examples,
            )
            return
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
        """Report why units are not proved; return how many are moved units of good records."""
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
        points_back, disowned = np.zeros(len(units), bool), np.zeros(len(units), bool)
        points_back[rows], disowned[rows] = self._points_back(queue.key, units[rows], numbers[rows])
        if note(FindingKind.UNIT_DISOWNED, disowned):
            self._findings.rebuild_flags.add("--accept-lost")
        moved = note(FindingKind.UNIT_MOVED, points_back)
        note(FindingKind.UNIT_WRONG, left.copy())
        return moved

    def _kind_behind_end(self) -> FindingKind | None:
        """Return the kind of units after the end of the log; None if a broker is writing."""
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

    def _points_back(
        self, key: tuple[str, int], units: Any, numbers: Int64s
    ) -> tuple[Bools, Bools]:
        """Return which units point at a record of their queue and size, and which are disowned.

        A disowned unit has its record's size and queue offset, but by its header the record is of
        an uncommitted transaction, or of another queue that is missing or has no place for it.
        """
        offsets, sizes = units["commit_log_offset"], units["message_size"]
        good, disowned = np.zeros(len(units), bool), np.zeros(len(units), bool)
        odd = np.concatenate([np.empty(0, np.int64), *self._odd_places])
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
            own = _of_queue(frames, key)[which]
            same = frames.ok[which] & (frames.column("total_size")[which] == sizes[rows])
            good[rows] = own & same
            same &= frames.column("queue_offset")[which] == numbers[rows]
            same &= np.where(own, _is_prepared(frames)[which], True)
            for row in np.flatnonzero(same & ~own & ~np.isin(offsets[rows], odd)).tolist():
                same[row] = not self._has_queue(frames, int(which[row]))
            disowned[rows] = same
            at = stop
        return good, disowned

    def _has_queue(self, frames: RecordFrames, row: int) -> bool:
        """Return whether the queue that a record names has files."""
        start = int(frames.topic_start[row])
        topic = frames.data[start : start + int(frames.topic_length[row])].tobytes()
        queue_id = int(frames.column("queue_id")[row])
        keys = {(name, queue_id) for name in (os.fsdecode(topic), decode_utf8(topic))}
        return any(key in self._simple or key in self._batch for key in keys)


def _begin_of_life(believed: Int64s, size: Int64s, matched: Bools) -> int | None:
    """Return the last row at which a queue begins at 0; a lone 0 counts only if it has its unit."""
    follows = np.append(believed[1:] == size[:-1], False)
    rows = np.flatnonzero((believed == 0) & (matched | follows))
    return int(rows[-1]) if len(rows) else None


def _is_prepared(frames: RecordFrames) -> Bools:
    found: Bools = frames.column("sys_flag") & NOT_QUEUED_BIT != 0
    return found


def _of_queue(frames: RecordFrames, key: tuple[str, int]) -> Any:
    result = np.zeros(len(frames), bool)
    rows = np.flatnonzero(frames.ok & (frames.column("queue_id") == key[1]))
    result[rows] = are_of_topic(frames, rows, key[0])
    return result
