# SPDX-License-Identifier: Apache-2.0
"""Recover log and queues after a stop or a crash, so that the store can be written again.

Source: RocketMQ ``DefaultMessageStore.load``, ``recover``, ``CommitLog.recoverNormally``,
``recoverAbnormally`` (release 5.3.3).

Unlike RocketMQ, recovery
- dispatches the record that begins exactly where dispatch stopped;
- cuts queue units that an earlier cut of the log left without a record;
- erases what it cuts, in the log and in the queues, before anything is appended;
- raises `LogDamageError` rather than cut readable records that were flushed or dispatched, unless
  ``cut`` is set;
- saves a copy of the readable records that it cuts;
- does not delete the queues of a store whose commit log is missing.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.files.byte_source import open_to_read
from store_core.files.file_writing import flush_directory, make_directory, sync_data, write_error
from store_core.layout import CHECKPOINT_FILE
from store_core.queue.queue_range import points_at_record
from store_core.queue.unit_states import QueueUnitStates, bytes_of, unit_blocks
from store_core.recovery.lost_end import find_lost_end
from store_core.recovery.queue_repair import cut_phantoms
from store_core.recovery.recovery_dispatch import (
    CountUnits,
    PutUnits,
    RecoveryDispatch,
    RecoveryParts,
)
from store_core.recovery.recovery_plan import (
    Cut,
    LogWalk,
    Loss,
    confirmed_start,
    damage_error,
    end_of_data,
    judge_cut,
    start_of_walk,
)
from store_core.state.checkpoint import CheckpointFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.log.commit_log import ReadableLog
    from store_core.log.end_rules import Failure
    from store_core.queue.consume_queue_store import AnyQueueWriter, QueueKey
    from store_core.queue.unit_states import AnyUnits
    from store_core.recovery.lost_end import LostEnd

__all__ = ["LogRecovery", "RecoveryParts", "plan_log", "recover_log"]
logger = logging.getLogger(__name__)
CUT_DIRECTORY = "_cut"
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class LogRecovery:
    """What recovery did to log and queues, or would do (`plan_log`).

    Attributes
    ----------
    last_start, last_timestamp
        The last record that was validated: its start (-1 if none was) and its store time, ms.
    unproven_offset
        Everything before this was on the disk, by a clean stop or by the checkpoint. Bytes after it
        may be missing after a power failure; no checksum covers properties.
    kept_at
        Directory with a copy of the bytes that were cut off; empty if no readable record was.
    """

    last_exit_ok: bool
    start_offset: int
    log_end: int
    reason: str
    last_start: int
    last_timestamp: int
    records: int
    dispatched_units: int = 0
    repaired_units: int = 0
    cut_bytes: int = 0
    records_behind: int = 0
    loss: Loss = Loss.NOTHING
    lost_end: LostEnd | None = None
    unproven_offset: int = 0
    kept_at: str = ""
    deleted_files: tuple[str, ...] = ()
    queues_cut: tuple[QueueKey, ...] = ()
    queues_moved: tuple[QueueKey, ...] = ()
    queues_lost: tuple[QueueKey, ...] = ()


def recover_log(
    parts: RecoveryParts,
    segments: MappedFileQueue,
    *,
    root: str,
    clock: Callable[[], int],
    cut: bool = False,
    cuts_tail: bool = True,
) -> LogRecovery:
    """Find the end of the log, add the units that queues lack, cut everything after the end.

    Parameters
    ----------
    clock
        Returns ms since the epoch.

    Raises
    ------
    LogDamageError
        Readable records that may not be cut follow the end, or records after it are lost. Nothing
        was cut; after a crash, queues may have got units that they lacked.
    StoreFormatError
        There are queues but no log.
    StoreWriteError, StoreReadError
        A file cannot be written or read.
    """
    _require_log(parts, cut=cut)
    phantoms = cut_phantoms(parts.queues, parts.log)
    evidence = QueueEvidence(parts)
    start = _start(parts)

    def before_units() -> None:
        # Otherwise queues could end right at the damage, and the next opening would take the
        # records after it for never dispatched, and cut them.
        if not cut:
            walk = LogWalk(parts.log, start, check_crc=parts.config.check_crc_on_recover)
            deque(walk.frames(), maxlen=0)
            judged = (walk, judge_cut(parts.log, walk, evidence))
            _refuse_loss(parts, judged, cuts_tail=cuts_tail)

    dispatch = RecoveryDispatch(parts, PutUnits(parts, before_units), start)
    with _forced_log(segments, start, is_needed=not parts.last_exit_ok):
        walk, found = _walk(parts, dispatch, start, evidence)
    if not cut:
        _refuse_loss(parts, (walk, found), cuts_tail=cuts_tail)
    dispatch.finish()
    _tell_phantoms(phantoms)
    kept = _keep_cut(parts, (walk, found), root, clock)
    lower_dispatched(parts.log, root, walk.end_offset)
    queues_cut = parts.queues.truncate_dirty(walk.end_offset)
    parts.queues.flush()
    deleted = _cut_log(segments, walk.end_offset)
    parts.queues.correct_min_offsets(max(segments.min_offset, 0))
    return _result(
        parts,
        (walk, found, start),
        dispatch,
        kept_at=kept,
        deleted_files=deleted,
        queues_cut=tuple(dict.fromkeys((*phantoms, *queues_cut))),
    )


def _refuse_loss(parts: RecoveryParts, walked: tuple[LogWalk, Cut], *, cuts_tail: bool) -> None:
    """Raise if a cut would remove readable records that it may not, or erase proof of a loss."""
    walk, found = walked
    if found.loss in (Loss.MESSAGES, Loss.END) or (found.loss is Loss.CRASH_TAIL and not cuts_tail):
        raise damage_error(parts.log, walk.end_offset, found)


def plan_log(parts: RecoveryParts) -> LogRecovery:
    """Return what `recover_log` would do, with ``cut`` if needed; changes no file.

    Raises
    ------
    StoreFormatError, StoreReadError
        As `recover_log`.
    """
    _require_log(parts, cut=False)
    phantoms = cut_phantoms(parts.queues, parts.log)
    evidence = QueueEvidence(parts)
    start = _start(parts)
    dispatch = RecoveryDispatch(parts, CountUnits(parts), start)
    walk, found = _walk(parts, dispatch, start, evidence)
    dispatch.finish()
    size, end = parts.log.segments.file_size, walk.end_offset
    behind = [s.path for s in parts.log.segments if s.from_offset > end and s.from_offset >= size]
    cut = [key for key in parts.queues.queues() if parts.queues.reaches(key, end)]
    return _result(
        parts,
        (walk, found, start),
        dispatch,
        deleted_files=tuple(behind),
        queues_cut=tuple(dict.fromkeys((*phantoms, *cut))),
    )


def _tell_phantoms(phantoms: tuple[QueueKey, ...]) -> None:
    for topic, queue_id in phantoms:
        logger.warning("cutting off the last units of queue %d of topic %s, which have no records",
                       queue_id, topic)  # fmt: skip


def _start(parts: RecoveryParts) -> int:
    start = start_of_walk(
        parts.log,
        parts.checkpoint,
        parts.queues.dispatch_from,
        last_exit_ok=parts.last_exit_ok,
        margin_ms=parts.config.flush_consume_queue_thorough_interval,
    )
    if parts.last_exit_ok and parts.trusts_confirmed:
        start = confirmed_start(parts.log, parts.checkpoint, parts.queues.dispatch_from, start)
    return start


def _walk(
    parts: RecoveryParts, dispatch: RecoveryDispatch, start: int, evidence: QueueEvidence
) -> tuple[LogWalk, Cut]:
    walk = LogWalk(
        parts.log,
        start,
        check_crc=parts.config.check_crc_on_recover,
        flushed_ms=parts.checkpoint.physic_msg_timestamp or 0,
    )
    segments = list(parts.log.segments)
    total = segments[-1].from_offset + segments[-1].size - start if segments else 0
    for frames in walk.frames():
        dispatch.add(frames)
        if parts.progress is not None:
            parts.progress(walk.end_offset - start, total)
    if parts.progress is not None:
        parts.progress(total, total)
    return walk, judge_cut(parts.log, walk, evidence)


def _require_log(parts: RecoveryParts, *, cut: bool) -> None:
    if any(True for _ in parts.log.segments) or cut:
        return
    if parts.queues.max_physic_offset >= 0:
        text = (
            "there are queues with messages, but no segment of the commit log; correct "
            "storePathCommitLog, or move the queues away"
        )
        raise StoreFormatError(text, parts.log.uri)


@contextmanager
def _forced_log(segments: MappedFileQueue, start: int, *, is_needed: bool) -> Iterator[None]:
    """After a crash, force the log to the disk during the walk, and so before its queue units."""
    if not is_needed:
        yield
        return
    with ThreadPoolExecutor(1, "force") as pool:
        forced = pool.submit(_force_log, segments, start)
        yield
        forced.result()


def _force_log(segments: MappedFileQueue, start: int) -> None:
    files = [file for file in segments.mapped_files if file.end_offset > start]
    try:
        for file in files:
            sync_data(file.descriptor())
        for directory in {str(Path(file.path).parent) for file in files}:
            flush_directory(directory)
    except OSError as err:
        raise write_error(err, segments.directories[0]) from err


def _keep_cut(
    parts: RecoveryParts, walked: tuple[LogWalk, Cut], root: str, clock: Callable[[], int]
) -> str:
    """Copy the bytes that will be cut off; return the directory, empty without readable records."""
    walk, found = walked
    if found.data_bytes:
        logger.warning("cutting %d bytes off the log at offset %d: %s",
                       found.data_bytes, walk.end_offset, found.reason)  # fmt: skip
    if not found.behind.records:
        return ""
    kept = keep_cut_bytes(parts.log, root, walk.end_offset, clock())
    logger.warning("records cut off at offset %d are kept in %s", walk.end_offset, kept)
    return kept


def _cut_log(segments: MappedFileQueue, end: int) -> tuple[str, ...]:
    before = [file.path for file in segments.mapped_files]
    segments.truncate_dirty_files(end)
    after = {file.path for file in segments.mapped_files}
    return tuple(path for path in before if path not in after)


def _result(
    parts: RecoveryParts,
    walked: tuple[LogWalk, Cut, int],
    dispatch: RecoveryDispatch,
    *,
    kept_at: str = "",
    deleted_files: tuple[str, ...] = (),
    queues_cut: tuple[QueueKey, ...] = (),
) -> LogRecovery:
    walk, found, start = walked
    return LogRecovery(
        last_exit_ok=parts.last_exit_ok,
        start_offset=start,
        log_end=walk.end_offset,
        reason=found.reason,
        last_start=walk.last_start,
        last_timestamp=walk.last_timestamp,
        records=walk.records,
        dispatched_units=dispatch.target.units,
        repaired_units=dispatch.target.repaired,
        cut_bytes=found.data_bytes,
        records_behind=found.behind.records,
        loss=found.loss,
        lost_end=found.lost_end,
        unproven_offset=walk.end_offset if parts.last_exit_ok else walk.flushed_end,
        kept_at=kept_at,
        deleted_files=deleted_files,
        queues_cut=queues_cut,
        queues_moved=tuple(
            dict.fromkeys(
                (*dispatch.target.moved, *parts.queues.refused, *dispatch.lacking_queues())
            )
        ),
    )


class QueueEvidence:
    """Evidence for ``recovery_plan.judge_cut``; created before any unit is put or cut."""

    def __init__(self, parts: RecoveryParts) -> None:
        checkpoint = parts.checkpoint
        self.stopped_cleanly, self.is_slave = parts.last_exit_ok, parts.config.is_slave
        self.confirm_phy_offset = checkpoint.confirm_phy_offset
        self.logics_msg_timestamp = checkpoint.logics_msg_timestamp
        self.physic_msg_timestamp = checkpoint.physic_msg_timestamp
        self._log, self._queues, self._witness = parts.log, parts.queues, parts.witness
        self._last_dispatched = -1 if parts.last_exit_ok else self._find_last_dispatched()

    def unit_states(self, offset: int, gap_bytes: int) -> QueueUnitStates:
        """Return the evidence of the queues on the records after a gap of the log.

        After a clean stop, recovery changes no unit before it has decided.
        """
        return QueueUnitStates(self._log, self._units_of, self._queues.queues(), offset, gap_bytes)

    def is_dispatched_behind(self, offset: int) -> bool:
        """Return whether a queue had a unit of a readable record after an offset."""
        return self._last_dispatched > offset

    def lost_end(self, end: Failure) -> LostEnd | None:
        """Return the evidence that records after the log's end are lost; None without proof."""
        return None if self._witness is None else find_lost_end(self._log, end, self._witness)

    def _units_of(self, topic: str, queue_id: int) -> AnyUnits | None:
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else queue.on_disk()

    def _find_last_dispatched(self) -> int:
        """Return the start of the last readable record to which any unit refers; -1 if none.

        The last unit of a queue may belong to a damaged record.
        """
        found = [(*queue.last_found, key) for key, queue in self._held()]
        last = -1
        for start, size, key in sorted(found, reverse=True):
            if start <= last:
                break
            if _is_record(self._log, key, start, size):
                last = start
            else:
                last = max(last, self._newest_record(key, last))
        return last

    def _held(self) -> Iterator[tuple[QueueKey, AnyQueueWriter]]:
        for key in self._queues.queues():
            queue = self._queues.find(*key)
            if queue is not None:
                yield key, queue

    def _newest_record(self, key: QueueKey, above: int) -> int:
        """Return the start of a queue's last readable record if it is after ``above``; else -1."""
        with suppress(CorruptRecordError, StoreFormatError, StoreReadError):
            units = self._units_of(*key)
            if units is None:
                return -1
            for block in unit_blocks(units, bytes_of(self._log)):
                starts = block.start[block.start > above]
                if len(starts) == 0 < len(block.start):
                    break
                sizes = dict(zip(block.start.tolist(), block.size.tolist()))
                for start in _readable(self._log, np.unique(starts)):
                    if _is_record(self._log, key, start, sizes[start]):
                        return start
        return -1


def _readable(log: ReadableLog, starts: npt.NDArray[np.int64]) -> Iterator[int]:
    """Yield the offsets (given ascending) at which readable records start, the last first."""
    for segment in reversed(list(log.segments)):
        end = segment.from_offset + log.segments.file_size
        inside = starts[(starts >= segment.from_offset) & (starts < end)]
        if len(inside):
            yield from inside[log.frames_at(segment, inside, end).ok].tolist()[::-1]


def _is_record(log: ReadableLog, key: QueueKey, start: int, size: int) -> bool:
    segment = log.segments.find(start)
    if segment is None:
        return False
    end = segment.from_offset + log.segments.file_size
    frames = log.frames_at(segment, np.array([start], np.int64), end)
    return bool(frames.ok[0]) and points_at_record(log, key, start, size, end)


def keep_cut_bytes(log: ReadableLog, root: str, end_offset: int, now_ms: int) -> str:
    """Copy everything after the end of the log to a directory of this cut, and return its path.

    Each file is named by the offset of its first byte, like a segment; zeros at the end are left
    out. Neither brokers nor readers use ``_cut``; it can be deleted.

    Raises
    ------
    StoreWriteError
        A file cannot be written; the log is unchanged.
    """
    directory = Path(root).absolute() / CUT_DIRECTORY / f"{end_offset:020d}-{now_ms}"
    size = log.segments.file_size
    try:
        make_directory(str(directory))
        for segment in log.segments:
            begin = max(end_offset - segment.from_offset, 0)
            stop = end_of_data(log, segment.from_offset, begin) if begin < size else begin
            if stop > begin:
                target = directory / f"{segment.from_offset + begin:020d}"
                _copy(Path(segment.path), begin, stop, target)
        flush_directory(str(directory))
    except OSError as err:
        raise write_error(err, str(err.filename or directory)) from err
    return str(directory)


def lower_dispatched(log: ReadableLog, root: str, end_offset: int) -> None:
    """Lower the checkpoint's last dispatched record if it is about to be cut off the log.

    With ``enableAcceleratedRecovery``, a 5.5 broker begins there after a crash, and takes the place
    for the end of the log if no record is there.

    Raises
    ------
    StoreWriteError
        The checkpoint cannot be written.
    """
    with closing(CheckpointFile(str(Path(root) / CHECKPOINT_FILE))) as checkpoint:
        checkpoint.load()
        if 0 < checkpoint.logics_physical_offset >= end_offset:
            checkpoint.logics_physical_offset = dispatched_before(log, end_offset)
            checkpoint.flush()


def dispatched_before(log: ReadableLog, end_offset: int) -> int:
    """Return the start of the first record of the last segment before an offset; 0 if none."""
    for segment in reversed([s for s in log.segments if s.from_offset < end_offset]):
        stop = min(end_offset, segment.from_offset + log.segments.file_size)
        begin = log.next_record(segment.from_offset, stop)
        if begin >= 0:
            return begin
    return 0


def _copy(path: Path, begin: int, stop: int, target: Path) -> None:
    with os.fdopen(open_to_read(str(path)), "rb") as source, target.open("wb") as copy:
        source.seek(begin)
        left = stop - begin
        while left > 0:
            data = source.read(min(left, _CHUNK_BYTES))
            if not data:
                break
            copy.write(data)
            left -= len(data)
        copy.flush()
        sync_data(copy.fileno())
    shutil.copystat(path, target)
