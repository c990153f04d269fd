"""What recovery decides before it changes anything: where to start, and whether it may cut.

Source: RocketMQ ``CommitLog.isMappedFileMatchedRecover``, ``recoverNormally``,
``recoverAbnormally`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.errors import LogDamageError
from store_core.recovery.record_checks import first_invalid
from store_core.recovery.recovery_walk import Behind, records_behind

if TYPE_CHECKING:
    from store_core.log.readable_log import ReadableLog
    from store_core.recovery.recovery_walk import LogWalk
    from store_core.state.store_checkpoint import StoreCheckpoint


class Cut(NamedTuple):
    """What lies behind the end of the log.

    Attributes
    ----------
    reason
        Why the log ends where it does.
    data_bytes
        Bytes from the end to the last one that is not zero, later segments included whole.
    behind
        Readable records in them.
    is_allowed
        Nothing is lost that was promised to be kept.
    """

    reason: str
    data_bytes: int
    behind: Behind
    is_allowed: bool


def start_of_walk(
    log: ReadableLog,
    checkpoint: StoreCheckpoint,
    dispatch_from: int,
    *,
    last_exit_ok: bool,
    margin_ms: int,
) -> int:
    """Return the start of the segment from which on records are validated and dispatched.

    That is the last one that begins with a good record, and where no queue lacks anything before
    it; after a crash, whose first record the checkpoint calls flushed, too. The first segment
    where none is so.

    RocketMQ has a margin of 3 s only, and does not look at the queues after a crash: but the
    checkpoint names what was dispatched, which is flushed to the queues a minute later.

    Parameters
    ----------
    log, checkpoint
        Those of the store.
    dispatch_from
        No queue lacks anything before; -1: nothing was dispatched.
    last_exit_ok
        The store was stopped cleanly.
    margin_ms
        How much later than the checkpoint says queues are flushed.
    """
    segments = list(log.segments)
    for segment in reversed(segments):
        begin = segment.from_offset
        if begin > max(dispatch_from, 0):
            continue
        records = log.records(segment, begin + log.segments.file_size)
        if not records.is_record(0):
            continue
        frames = records.frames_at(np.zeros(1, np.int64))
        first_ms = int(frames.column("store_timestamp")[0])
        is_flushed = last_exit_ok or first_ms <= checkpoint.min_timestamp - margin_ms
        if first_ms and is_flushed and first_invalid(frames):
            return begin
    return segments[0].from_offset if segments else 0


def confirmed_start(
    log: ReadableLog, checkpoint: StoreCheckpoint, dispatch_from: int, start_offset: int
) -> int:
    """Return where the walk may begin after a clean stop: at the record that was confirmed as last.

    It spares validating all of the last segment, for those who only append. ``start_offset`` where
    there is no such record behind it, or a queue lacks something before it.
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


def judge_cut(
    log: ReadableLog, walk: LogWalk, checkpoint: StoreCheckpoint, *, last_exit_ok: bool
) -> Cut:
    """Tell what a cut at the end of a walk would take away.

    RocketMQ cuts wherever validation fails, and everything behind one damaged record is gone. Here
    readable records behind the end are cut only if they are no part of the log, or were never
    promised to be: they are older than the last good record (an earlier cut left them), or the
    checkpoint names that record as the last, or the store crashed before it had flushed them.
    """
    end = walk.end_offset
    data_bytes = _data_bytes(log, end)
    if data_bytes == 0:
        return Cut("only zeros follow", 0, Behind(), is_allowed=True)
    behind = records_behind(log, end)
    if behind.records == 0:
        return Cut("no readable record follows", data_bytes, behind, is_allowed=True)
    confirmed = checkpoint.confirm_phy_offset or 0
    if not behind.in_later_segment:
        if last_exit_ok and 0 < confirmed == walk.last_start:
            reason = "it follows the record that the checkpoint confirms as the last"
            return Cut(reason, data_bytes, behind, is_allowed=True)
        if walk.last_start >= 0 and behind.first_timestamp < walk.last_timestamp:
            reason = "the next readable record is older: an old cut of the log"
            return Cut(reason, data_bytes, behind, is_allowed=True)
    physic = checkpoint.physic_msg_timestamp or 0
    # Of the millisecond that was flushed last, some records were and some were not.
    is_new = behind.oldest_timestamp > physic or (
        behind.oldest_timestamp == physic == walk.last_timestamp
    )
    if not last_exit_ok and is_new:
        reason = "the store crashed before what follows was flushed"
        return Cut(reason, data_bytes, behind, is_allowed=True)
    return Cut("a record is damaged", data_bytes, behind, is_allowed=False)


def damage_error(log: ReadableLog, end_offset: int, behind: Behind) -> LogDamageError:
    """Return the error for a cut that would lose records."""
    segment = log.segments.find(end_offset)
    path = segment.path if segment is not None else log.uri
    position = end_offset - (segment.from_offset if segment is not None else 0)
    text = (
        f"a damaged record; {behind.records} readable records follow, the first at offset "
        f"{behind.first_offset}, and a broker that opens this store would cut them all off. "
        "Copy them with `rocketmq-store salvage`, or cut them off with `rocketmq-store recover "
        "--cut`, which keeps what it cuts below _cut"
    )
    return LogDamageError(text, path, position, behind.records)


def _data_bytes(log: ReadableLog, end_offset: int) -> int:
    size, total = log.segments.file_size, 0
    for segment in log.segments:
        if segment.from_offset + size <= end_offset:
            continue
        begin = max(end_offset - segment.from_offset, 0)
        stop = end_of_data(log, segment.from_offset, begin)
        total += stop - begin
    return total


_CHUNK_BYTES = 8 << 20


def end_of_data(log: ReadableLog, from_offset: int, begin: int) -> int:
    """Return the position behind the last byte that is not zero, in one segment; else ``begin``."""
    segment = log.segments.find(from_offset)
    if segment is None:
        return begin
    source, found, at = log.source(segment), begin, begin
    while (at := source.next_data(at)) < source.size:
        filled = np.flatnonzero(source.view(at, _CHUNK_BYTES))
        if len(filled):
            found = at + int(filled[-1]) + 1
        source.forget(at, _CHUNK_BYTES)
        at += _CHUNK_BYTES
    return found
