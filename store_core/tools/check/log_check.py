"""Check the commit log: every record with its CRCs, and every byte of every file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.codec.inner_columns import undecodable_bodies
from store_core.codec.record_crcs import (
    body_crc_failures,
    property_crc_failures,
    rows_with_property_crc,
)
from store_core.errors import StoreReadError
from store_core.files.nonzero_bytes import first_nonzero, last_nonzero
from store_core.log.log_scan import DAMAGED_HEADER, Gap, scan_log
from store_core.tools.check.entry_check import EntryCheck
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread
from store_core.tools.check.time_check import StoreTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store_core.codec.record_frames import RecordFrames
    from store_core.files.segment_list import Segment
    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings
    from store_core.tools.check.time_check import Outlier


class LogCheck:
    """Walks the log once; the frames that it yields serve the checks of queues and index.

    Memory: one batch of at most 65,536 records and (but for a single larger one) 32 MiB.

    Attributes
    ----------
    lost
        Ranges ``(start, stop)`` of the log in which nothing can be read, ascending.
    last_store_timestamp
        Newest store time (ms) that was seen; -1 before any.
    """

    def __init__(self, snapshot: StoreSnapshot, findings: Findings, counts: CheckCounts) -> None:
        self._snapshot = snapshot
        self._findings = findings
        self._counts = counts
        self.lost: list[tuple[int, int]] = []
        self.last_store_timestamp = -1
        self._times = StoreTimes()
        self._entries = EntryCheck(snapshot, findings, counts)

    def frames(self) -> Iterator[RecordFrames]:
        """Yield all readable records in the order of the log, and note what is wrong."""
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
        """Return for each offset whether it lies where nothing can be read."""
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
