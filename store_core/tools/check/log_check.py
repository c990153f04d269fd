# SPDX-License-Identifier: Apache-2.0
"""Check the commit log: every record with its CRCs, and every byte of every file."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.codec.crc32 import (
    body_crc_failures,
    property_crc_failures,
    rows_with_property_crc,
)
from store_core.codec.inner_columns import undecodable_bodies
from store_core.config.config_files import load_consumer_offsets, load_delay_offsets
from store_core.errors import StoreError, StoreReadError
from store_core.files.byte_source import first_nonzero, last_nonzero
from store_core.layout import CHECKPOINT_FILE, LOCK_FILE
from store_core.log.commit_log import commit_log_directories, scan_log
from store_core.log.log_scan import DAMAGED_HEADER, Gap
from store_core.tools.check.entry_check import EntryCheck
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store_core.codec.record_frames import RecordFrames
    from store_core.files.segment_list import Segment
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

_MADE_BY_A_BROKER = (LOCK_FILE, CHECKPOINT_FILE)
_SLACK_MS = 10_000
"""If a clock moves back and forth by less than this between three records, it is no damage."""
_END_SLACK_MS = 10 * 365 * 86_400_000
"""For the first and last record, which have one neighbour; after idle times, steps are large."""
_LIMIT_MS = 1 << 61  # differences of clipped times fit into 64 bits


class LogCheck:
    """Walks the log once, and yields its frames for the checks of queues and index.

    Memory: one batch of at most 65,536 records and 32 MiB (more only for a single larger record).

    Attributes
    ----------
    lost
        Unreadable ranges ``(start, stop)`` of the log, ascending.
    last_store_timestamp
        Newest store time (ms) so far; -1 before the first record.
    """

    def __init__(self, snapshot: StoreSnapshot, findings: Findings, counts: CheckCounts) -> None:
        self._snapshot = snapshot
        self._findings = findings
        self._counts = counts
        self.lost: list[tuple[int, int]] = []
        self.last_store_timestamp = -1
        self._times = StoreTimeCheck()
        self._entries = EntryCheck(snapshot, findings, counts)

    def frames(self) -> Iterator[RecordFrames]:
        """Yield all readable records in log order, and report damage."""
        segments = list(self._snapshot.log.segments)
        followers = [segment.from_offset for segment in segments[1:]]
        for segment, next_offset in zip(segments, [*followers, None]):
            try:
                yield from self._segment(segment, next_offset)
            except StoreReadError as err:
                self._findings.add(unread(err), segment.path, examples=(err.reason,))
                stop = segment.from_offset + self._snapshot.log.segments.file_size
                self.lost.append((segment.from_offset, stop))
        for outlier in self._times.finish():
            self._outlier(outlier)

    def is_lost(self, commit_log_offsets: Any) -> Any:
        """Return which offsets are in an unreadable range."""
        if not self.lost:
            return np.zeros(len(commit_log_offsets), bool)
        bounds = np.array(self.lost, np.int64)
        at = np.searchsorted(bounds[:, 0], commit_log_offsets, "right") - 1
        return (at >= 0) & (commit_log_offsets < bounds[np.maximum(at, 0), 1])

    def _segment(self, segment: Segment, next_offset: int | None) -> Iterator[RecordFrames]:
        self._counts.segments += 1
        size, start = self._snapshot.log.segments.file_size, segment.from_offset
        done, end_offset = start, self._snapshot.end_offset
        if start < end_offset:
            stop = start + size if next_offset is None else next_offset
            for found in scan_log(self._snapshot.log, start, stop, end_offset):
                if isinstance(found, Gap):
                    self._gap(found)
                    if found.position < size:
                        done = found.commit_log_offset + found.bytes_lost
                    continue
                self._check(found, segment)
                done = int(found.column("commit_log_offset")[-1])
                done += int(found.column("total_size")[-1])
                yield found
        self._rest(segment, done - start)

    def _gap(self, gap: Gap) -> None:
        stop = gap.commit_log_offset + gap.bytes_lost
        self.lost.append((gap.commit_log_offset, stop))
        kind = FindingKind.LOG_GAP
        if gap.position >= self._snapshot.log.segments.file_size:
            kind = FindingKind.SEGMENT_MISSING
        else:
            self._counts.lost_bytes += gap.bytes_lost
            if gap.reason == DAMAGED_HEADER:
                kind = FindingKind.ENTRY_HEADER
            elif stop == self._snapshot.end_offset:
                kind = FindingKind.LOG_TAIL
        self._findings.add(
            kind,
            gap.path,
            position=gap.position,
            commit_log_offset=gap.commit_log_offset,
            byte_count=gap.bytes_lost,
            examples=[f"byte {gap.position}, {gap.bytes_lost} bytes: {gap.reason}"],
        )

    def _check(self, frames: RecordFrames, segment: Segment) -> None:
        if segment.header_bytes:
            self._entries.check(frames, segment)
        counts = self._counts
        sizes = frames.column("total_size")
        counts.records += len(frames)
        counts.record_bytes += int(sizes.sum(dtype=np.int64))
        counts.body_crcs += int(np.count_nonzero(frames.body_length > 0))
        newest = int(frames.column("store_timestamp").max())
        self.last_store_timestamp = max(self.last_store_timestamp, newest)
        counts.property_crcs += len(rows_with_property_crc(frames))
        for outlier in self._times.add(frames):
            self._outlier(outlier)
        bad = body_crc_failures(frames)
        self._bad_records(FindingKind.BODY_CRC, frames, segment, bad)
        wrong_bodies = {row for row, _ in bad}
        undecodable = [one for one in undecodable_bodies(frames) if one.row not in wrong_bodies]
        self._bad_records(FindingKind.BODY_FLAGS, frames, segment, undecodable)
        bad_records = property_crc_failures(frames)
        self._bad_records(FindingKind.PROPERTY_CRC, frames, segment, bad_records)

    def _outlier(self, outlier: Outlier) -> None:
        at, time, before, behind = outlier
        segment = self._snapshot.log.segments.find(at)
        self._findings.add(
            FindingKind.STORE_TIME,
            segment.path if segment else "",
            position=at - segment.from_offset if segment else -1,
            commit_log_offset=at,
            examples=[f"record at {at}: {time} ms; before it {before}, after it {behind}"],
        )

    def _bad_records(
        self,
        kind: FindingKind,
        frames: RecordFrames,
        segment: Segment,
        bad: Sequence[tuple[int, str]],
    ) -> None:
        if not bad:
            return
        offsets = frames.column("commit_log_offset")
        first = int(offsets[bad[0][0]])
        rows = [row for row, _ in bad]
        self._findings.add(
            kind,
            segment.path,
            position=first - segment.from_offset,
            commit_log_offset=first,
            count=len(bad),
            byte_count=int(frames.column("total_size")[rows].sum(dtype=np.int64)),
            examples=[f"record at {offsets[row]}: {reason}" for row, reason in bad[:8]],
        )

    def _rest(self, segment: Segment, position: int) -> None:
        """Account for the bytes of a file after its last record: blank, old, or never written."""
        size = min(segment.size, self._snapshot.log.segments.file_size)
        left = size - position
        if left <= 0:
            return
        source = self._snapshot.log.source(segment)
        closed = segment.from_offset + position < self._snapshot.end_offset
        records = self._snapshot.log.records(segment, segment.from_offset + size)
        length = records.blank_bytes(position)
        if length is not None and (closed or length == left):
            self._counts.blank_bytes += left
            if length != left:
                text = [f"byte {position}: {length}, but {left} bytes are left"]
                place = segment.path
                self._findings.add(FindingKind.ODD_BLANK, place, position=position, examples=text)
            return
        first = first_nonzero(source, position, size)
        if first < 0:
            self._counts.zero_bytes += left
            return
        last = last_nonzero(source, position, size)
        stale = last + 1 - position
        self._counts.stale_bytes += stale
        self._counts.zero_bytes += left - stale
        self._findings.add(
            FindingKind.STALE_BYTES,
            segment.path,
            position=first,
            commit_log_offset=segment.from_offset + first,
            byte_count=last + 1 - first,
            examples=[f"bytes {first} to {last + 1}; the log ends at byte {position}"],
        )


def check_log_is_there(snapshot: StoreSnapshot, counts: CheckCounts, findings: Findings) -> None:
    """Report a log without records, unless its broker never received a message.

    Such a broker leaves ``commitlog/``, ``lock`` and a ``checkpoint`` of zeros, and nothing else in
    the store mentions a message.
    """
    if counts.records:
        return
    if len(snapshot.log.segments):
        if counts.stale_bytes and not counts.blank_bytes:
            text = f"{counts.stale_bytes} bytes in {len(snapshot.log.segments)} files"
            findings.add(
                FindingKind.NO_RECORD, snapshot.log.segments.segments[0].path, examples=[text]
            )
        return
    places = commit_log_directories(snapshot.directory, snapshot.config)
    places += snapshot.dledger_directories
    place = places[0] if places else ""
    evidence = list(_traces_of_messages(snapshot))
    if evidence:
        findings.add(FindingKind.LOG_MISSING, place, examples=evidence)
        return
    made = [snapshot.directory.stat(snapshot.directory.resolve(name)) for name in _MADE_BY_A_BROKER]
    present = [entry for path in places if (entry := snapshot.directory.stat(path)) is not None]
    if not present or not all(made):
        found = "the directory is empty" if present else "there is no such directory"
        findings.add(FindingKind.LOG_UNKNOWN, place, examples=[found])


def check_log_end(snapshot: StoreSnapshot, findings: Findings) -> None:
    """Report messages that other parts of the store mention after the end of the log."""
    lost = snapshot.lost_end
    if lost is None:
        return
    units = [
        f"{topic}/{queue_id}: queue offsets {found.queue_offset} to {found.stop - 1}"
        for (topic, queue_id), found in lost.queues.items()
    ]
    findings.add(
        FindingKind.LOG_END_LOST,
        snapshot.log.segments.segments[-1].path,
        commit_log_offset=lost.end_offset,
        count=max(lost.messages, 1),
        byte_count=lost.reach - lost.end_offset,
        examples=[*lost.proofs, *units],
    )


def _traces_of_messages(snapshot: StoreSnapshot) -> Iterator[str]:
    """Yield, in words, evidence outside the log that the store had messages; one of each sort."""
    with suppress(StoreError):
        for topic, queue_id in (*snapshot.queue_paths, *snapshot.batch_queue_paths):
            if _has_units(snapshot, topic, queue_id):
                yield f"consume queue {topic}/{queue_id} has units"
                break
    with suppress(StoreError):
        if any(entry.header.entry_count > 0 for entry in snapshot.index.files):
            yield "the index has entries"
    point = snapshot.checkpoint
    if point is not None and any((point.physic_msg_timestamp, point.confirm_phy_offset)):
        yield "the checkpoint names a record"
    with suppress(StoreError):
        for (group, topic), offsets in load_consumer_offsets(snapshot.directory).items():
            if any(offset > 0 for offset in offsets.values()):
                yield f"group {group} consumed messages of topic {topic}"
                break
    with suppress(StoreError):
        if any(offset > 0 for offset in (load_delay_offsets(snapshot.directory) or {}).values()):
            yield "delayed messages were delivered"


def _has_units(snapshot: StoreSnapshot, topic: str, queue_id: int) -> bool:
    simple = snapshot.consume_queue(topic, queue_id)
    if simple is not None and simple.end_of_units() > 0:
        return True
    units = snapshot.batch_units(topic, queue_id)
    return units is not None and len(units) > 0


# Records get their store time in log order, so times only grow unless the clock is set back. Then
# all later times are lower, but the last record before keeps its neighbour's delay since the
# producer's timestamp (born time). A damaged time differs from both neighbours, in time and delay,
# while they agree with each other.
class Outlier(NamedTuple):
    """A record whose store time does not fit, and the times before and after it (ms)."""

    commit_log_offset: int
    store_timestamp: int
    before: int
    behind: int


class StoreTimeCheck:
    """Checks store times in log order, batch by batch; remembers the last two records."""

    def __init__(self) -> None:
        none = np.empty(0, np.int64)
        self._held: tuple[Any, ...] = (none, none, none)
        self._is_begin = True

    def add(self, frames: RecordFrames) -> Iterator[Outlier]:
        """Yield the records that do not fit; the batch's last follows with the next batch."""
        names = ("commit_log_offset", "store_timestamp", "born_timestamp")
        added = (frames.column(name).astype(np.int64) for name in names)
        at, stored, born = (np.concatenate(pair) for pair in zip(self._held, added))
        if len(at) > 1 and self._is_begin:
            yield from _end_outlier(at, stored, born, 0, 1)
            self._is_begin = False
        yield from _outliers(at, stored, born)
        self._held = (at[-2:], stored[-2:], born[-2:])

    def finish(self) -> Iterator[Outlier]:
        """Yield the last record if it does not fit."""
        at, stored, born = self._held
        if len(at) > 1:
            yield from _end_outlier(at, stored, born, -1, -2)


def _outliers(at: Any, stored: Any, born: Any) -> Iterator[Outlier]:
    stored = np.clip(stored, -_LIMIT_MS, _LIMIT_MS)
    low = np.minimum(stored[:-2], stored[2:])
    high = np.maximum(stored[:-2], stored[2:])
    middle = stored[1:-1]
    away = np.maximum(low - middle, middle - high) > _SLACK_MS + np.minimum(high - low, _LIMIT_MS)
    for row in np.flatnonzero(away).tolist():
        delays = [int(stored[i]) - int(born[i]) for i in (row, row + 1, row + 2)]
        if min(abs(delays[1] - delays[0]), abs(delays[1] - delays[2])) > _SLACK_MS:
            times = stored[row : row + 3].tolist()
            yield Outlier(int(at[row + 1]), times[1], times[0], times[2])


def _end_outlier(at: Any, stored: Any, born: Any, end: int, other: int) -> Iterator[Outlier]:
    time, neighbour = int(stored[end]), int(stored[other])
    delay, usual = time - int(born[end]), neighbour - int(born[other])
    if min(abs(time - neighbour), abs(delay - usual)) > _END_SLACK_MS:
        yield Outlier(int(at[end]), time, neighbour, neighbour)
