# SPDX-License-Identifier: Apache-2.0
"""Decide, before recovery changes anything, where it starts and whether it may cut the log.

Source: RocketMQ ``CommitLog.isMappedFileMatchedRecover``, ``recoverNormally``,
``recoverAbnormally`` (release 5.3.3).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from store_core.codec.crc32 import first_invalid
from store_core.codec.record_frames import RecordFrames, walk_records
from store_core.errors import LogDamageError
from store_core.files.byte_source import last_nonzero
from store_core.log.commit_log import last_begun_by, scan_frames
from store_core.log.end_rules import (
    CRASH_TAIL,
    DAMAGED,
    LAST_DAMAGED,
    UNFINISHED_APPEND,
    ZEROS,
    CutEvidence,
    Failure,
    is_unflushed,
    reason_for_end,
)
from store_core.log.log_scan import skip_gap

if TYPE_CHECKING:
    from collections.abc import Generator

    from store_core.files.segment_list import Segment
    from store_core.log.commit_log import ReadableLog
    from store_core.recovery.lost_end import LostEnd
    from store_core.state.checkpoint import StoreCheckpoint

_WALK_ROWS = 1 << 14  # larger arrays are newly allocated memory every time
_WALK_BYTES = 32 << 20


class Loss(Enum):
    """Data that a cut at the end of the log removes, or that is lost already."""

    NOTHING = "nothing readable"
    OLD_CUT = "records left by an earlier cut, which are not part of the log"
    CRASH_TAIL = "readable records that were neither flushed nor dispatched before a crash"
    MESSAGES = "readable records of the log"
    END = "nothing readable; the records that followed were already lost"


class Cut(NamedTuple):
    """The reason why the log ends, and the data that a cut there removes.

    Attributes
    ----------
    lost_end
        Evidence that records after the end are lost; None without proof.
    """

    reason: str
    data_bytes: int
    behind: Behind
    loss: Loss
    lost_end: LostEnd | None = None


class RecoveryEvidence(CutEvidence, Protocol):
    """Evidence of recovery from the files of a store other than its log."""

    def is_dispatched_behind(self, offset: int) -> bool:
        """Return whether a queue had a unit of a readable record after an offset."""

    def lost_end(self, end: Failure) -> LostEnd | None:
        """Return the evidence that records after the log's end are lost; None without proof."""


def start_of_walk(
    log: ReadableLog,
    checkpoint: StoreCheckpoint,
    dispatch_from: int,
    *,
    last_exit_ok: bool,
    margin_ms: int,
) -> int:
    """Return the start of the segment where recovery begins to validate and dispatch records.

    That is the last segment that begins with a good record and before which no queue lacks
    anything; after a crash, it must also have begun by the time up to which the checkpoint calls
    the store flushed, less a margin (`last_begun_by`). If there is none, it is the first segment.

    RocketMQ's margin is only 3 s, and it does not check the queues after a crash, although the
    checkpoint has the time of dispatch, and queues are flushed up to a minute later.

    Parameters
    ----------
    dispatch_from
        No queue lacks anything before this; -1 if nothing was dispatched.
    """
    segments = list(log.segments)
    limit = max(dispatch_from, 0)
    if not last_exit_ok:
        flushed_ms = checkpoint.min_timestamp - margin_ms
        limit = min(limit, last_begun_by(log, _end_of_files(log), flushed_ms))
    for segment in reversed(segments):
        begin = segment.from_offset
        if begin > limit:
            continue
        records = log.records(segment, begin + log.segments.file_size)
        if not records.is_record(0):
            continue
        frames = records.frames_at(np.zeros(1, np.int64))
        if frames.column("store_timestamp")[0] and first_invalid(frames):
            return begin
    return segments[0].from_offset if segments else 0


def confirmed_start(
    log: ReadableLog, checkpoint: StoreCheckpoint, dispatch_from: int, start_offset: int
) -> int:
    """Return where the walk may begin after a clean stop: at the record confirmed as the last.

    A caller that only appends need not validate the whole last segment then. ``start_offset`` if
    there is no such record after it, or if a queue lacks anything before that record.
    """
    confirmed = checkpoint.confirm_phy_offset or 0
    segment = log.segments.find(confirmed)
    if not start_offset < confirmed <= dispatch_from or segment is None:
        return start_offset
    records = log.records(segment, segment.from_offset + log.segments.file_size)
    position = confirmed - segment.from_offset
    if not records.is_record(position):
        return start_offset
    is_good = first_invalid(records.frames_at(np.array([position], np.int64)))
    return confirmed if is_good else start_offset


def judge_cut(log: ReadableLog, walk: LogWalk, evidence: RecoveryEvidence) -> Cut:
    """Return what a cut at the end of a walk would remove, and whether records there are lost.

    RocketMQ cuts wherever validation fails, and loses everything after one damaged record. Here
    ``end_rules`` decides.
    """
    found = _judge_bytes(log, walk, evidence)
    if found.loss not in (Loss.NOTHING, Loss.OLD_CUT):
        return found
    lost = evidence.lost_end(Failure(walk.end_offset, walk.last_start, walk.last_timestamp))
    return found if lost is None else found._replace(loss=Loss.END, lost_end=lost)


def _judge_bytes(log: ReadableLog, walk: LogWalk, evidence: RecoveryEvidence) -> Cut:
    end = walk.end_offset
    data_bytes = _data_bytes(log, end)
    if data_bytes == 0:
        return Cut(ZEROS, 0, Behind(), Loss.NOTHING)
    behind = records_behind(log, end)
    if not behind.in_later_segment:
        failure = Failure(end, walk.last_start, walk.last_timestamp)
        reason = reason_for_end(log, failure, behind.first_offset, evidence)
        if reason == UNFINISHED_APPEND:
            return Cut(reason, data_bytes, behind, Loss.CRASH_TAIL)
        if reason is not None:
            return Cut(reason, data_bytes, behind, Loss.OLD_CUT if behind.records else Loss.NOTHING)
    if behind.records == 0:
        last = _damaged_last(log, end, evidence)
        if last.records:
            return Cut(LAST_DAMAGED, data_bytes, last, Loss.MESSAGES)
        return Cut("no readable record follows", data_bytes, behind, Loss.NOTHING)
    is_new = is_unflushed(behind.oldest_timestamp, walk.last_timestamp, evidence)
    if not evidence.stopped_cleanly and is_new and not evidence.is_dispatched_behind(end):
        return Cut(CRASH_TAIL, data_bytes, behind, Loss.CRASH_TAIL)
    return Cut(DAMAGED, data_bytes, behind, Loss.MESSAGES)


def _damaged_last(log: ReadableLog, end: int, evidence: RecoveryEvidence) -> Behind:
    """Return the record at the end if it can be read and is not a half-written one.

    A clean stop leaves no half-written record: one that fails its CRC was damaged later, unless it
    was never dispatched (RocketMQ 4.x recovered the store and wrote nothing to it). Without its
    queue this is not known.
    """
    segment = log.segments.find(end)
    if not evidence.stopped_cleanly or segment is None:
        return Behind()
    frames = log.frames_at(segment, np.array([end], np.int64), _end_of_segment(log, segment))
    if not frames.ok[0] or evidence.unit_states(end, 0).states_of(frames)[0] < 0:
        return Behind()
    time_ms = int(frames.column("store_timestamp")[0])
    return Behind(1, end, time_ms, time_ms)


def _end_of_files(log: ReadableLog) -> int:
    return max((_end_of_segment(log, segment) for segment in log.segments), default=0)


def _end_of_segment(log: ReadableLog, segment: Segment) -> int:
    return segment.from_offset + log.segments.file_size


def damage_error(log: ReadableLog, end_offset: int, found: Cut) -> LogDamageError:
    """Return the error for a cut that would lose records, or for records already lost."""
    segment = log.segments.find(end_offset)
    path = segment.path if segment is not None else log.uri
    position = end_offset - (segment.from_offset if segment is not None else 0)
    behind = found.behind
    if found.lost_end is not None:
        return lost_end_error(log, found.lost_end)
    text = (
        f"a damaged record is followed by {behind.records} readable records, the first at offset "
        f"{behind.first_offset}; a broker that opens this store would cut them all off. "
    )
    if behind.first_offset == end_offset:
        text = (
            "the last record fails its CRC, and a broker that opens this store would cut it off. "
        )
    if found.loss is Loss.CRASH_TAIL:
        text += (
            "They were neither flushed nor dispatched before the crash. Copy them with "
            "`rocketmq-store salvage`, or cut them off with `rocketmq-store recover`, which keeps "
            "a copy in _cut"
        )
    else:
        text += (
            "Copy the readable records with `rocketmq-store salvage`, or cut them off with "
            "`rocketmq-store recover --cut`, which keeps a copy in _cut"
        )
    return LogDamageError(text, path, position, behind.records)


def lost_end_error(log: ReadableLog, lost: LostEnd) -> LogDamageError:
    """Return the error raised before work that would erase the proof of a lost end of the log."""
    segment = log.segments.find(max(lost.end_offset - 1, 0))
    path = segment.path if segment is not None else log.uri
    position = lost.end_offset - (segment.from_offset if segment is not None else 0)
    text = (
        f"{lost} Nothing was changed. Restore what is missing, or give it up with `rocketmq-store "
        "recover --cut`"
    )
    return LogDamageError(text, path, position, 0)


def _data_bytes(log: ReadableLog, end_offset: int) -> int:
    size, total = log.segments.file_size, 0
    for segment in log.segments:
        if segment.from_offset + size <= end_offset:
            continue
        begin = max(end_offset - segment.from_offset, 0)
        stop = end_of_data(log, segment.from_offset, begin)
        total += stop - begin
    return total


def end_of_data(log: ReadableLog, from_offset: int, begin: int) -> int:
    """Return the position after a segment's last nonzero byte, at least ``begin``."""
    segment = log.segments.find(from_offset)
    if segment is None:
        return begin
    return max(begin, last_nonzero(log.source(segment), begin) + 1)


# Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally`` (release 5.3.3).
class LogWalk:
    """Validates records from an offset on, up to the first invalid one.

    Parameters
    ----------
    flushed_ms
        Store time up to which the log is known to be on the disk; 0 if not known.

    Attributes
    ----------
    last_start, last_timestamp
        The last good record: its start (-1 if none) and its store time, ms.
    """

    def __init__(
        self, log: ReadableLog, start_offset: int, *, check_crc: bool = True, flushed_ms: int = 0
    ) -> None:
        self.end_offset = self.flushed_end = start_offset
        self._flushed_ms, self._is_flushed = flushed_ms, True
        self.last_start, self.last_timestamp, self.records = -1, 0, 0
        self._log, self._check_crc = log, check_crc

    def frames(self) -> Generator[RecordFrames, None, None]:
        """Yield good records, in order; their bytes stay valid as long as they are referenced."""
        start, size = self.end_offset, self._log.segments.file_size
        segments = [s for s in self._log.segments if s.from_offset + size > start]
        for segment in segments:
            self.end_offset = max(segment.from_offset, start)
            yield from self._of_segment(segment, self.end_offset - segment.from_offset)
            if not self._is_blank(segment):
                return
        # The next append rewrites the blank record of the last segment.

    def _of_segment(self, segment: Segment, at: int) -> Generator[RecordFrames, None, None]:
        records = self._log.records(segment, segment.from_offset + self._log.segments.file_size)
        source = self._log.source(segment)
        while at < records.length:
            window = records.window(at, records.length)
            start = at - window.start
            walk = walk_records(window.data, start, len(window.data), _WALK_ROWS, _WALK_BYTES)
            frames = RecordFrames(window.data, segment.from_offset + window.start, walk.starts)
            good = first_invalid(frames, check_crc=self._check_crc)
            if good == 0:
                return
            stop = walk.stop if good == len(frames) else int(walk.starts[good])
            frames = frames if good == len(frames) else frames.take(np.arange(good))
            self.records += good
            self.last_start = int(frames.column("commit_log_offset")[-1])
            self._note_times(frames)
            seen, at = at, window.start + stop
            self.end_offset = segment.from_offset + at
            yield frames
            source.forget(seen, at - seen)

    def _note_times(self, frames: RecordFrames) -> None:
        times = frames.column("store_timestamp")
        self.last_timestamp = int(times[-1])
        if self._is_flushed:
            late = np.append(times >= self._flushed_ms, True)
            count = int(np.argmax(late))
            if count:
                last = frames.take(np.array([count - 1]))
                begin = int(last.column("commit_log_offset")[0])
                self.flushed_end = begin + int(last.column("total_size")[0])
            self._is_flushed = count == len(frames)

    def _is_blank(self, segment: Segment) -> bool:
        """Return whether a blank record closes the segment at `end_offset`."""
        records = self._log.records(segment, segment.from_offset + self._log.segments.file_size)
        return records.closes_at(self.end_offset - segment.from_offset)


class Behind(NamedTuple):
    """Readable records after the place where a walk ended.

    Attributes
    ----------
    first_offset, first_timestamp
        The first one: its start (-1 if none) and its store time, ms.
    oldest_timestamp
        The smallest store time of all, ms.
    """

    records: int = 0
    first_offset: int = -1
    first_timestamp: int = 0
    oldest_timestamp: int = 0
    in_later_segment: bool = False


def records_behind(log: ReadableLog, end_offset: int) -> Behind:
    """Count the readable records after an offset; reads everything there except holes."""
    size = log.segments.file_size
    segments = list(log.segments)
    log_end = segments[-1].from_offset + size if segments else 0
    count, first, first_ms, oldest, later = 0, -1, 0, 0, False
    for segment in segments:
        begin = max(segment.from_offset, end_offset + 1)
        if begin >= segment.from_offset + size:
            continue
        found = log.next_record(begin, log_end)
        if found < 0:
            continue
        for frames in scan_frames(log, found, segment.from_offset + size, on_gap=skip_gap):
            times = frames.column("store_timestamp")
            if first < 0:
                first, first_ms = int(frames.column("commit_log_offset")[0]), int(times[0])
                oldest = first_ms
            oldest = min(oldest, int(times.min()))
            later |= segment.from_offset > end_offset
            count += len(frames)
    return Behind(count, first, first_ms, oldest, later)
