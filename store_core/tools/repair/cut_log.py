# SPDX-License-Identifier: Apache-2.0
"""Cut the log of a stopped store at the end of a record, after copying the rest."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from store_core.errors import OffsetOutOfRangeError
from store_core.files.store_directory import StoreDirectory, local_path
from store_core.layout import CHECKPOINT_FILE
from store_core.log.commit_log import CommitLog, open_segments, scan_frames
from store_core.log.log_scan import skip_gap
from store_core.recovery.recovery import dispatched_before, keep_cut_bytes
from store_core.state.checkpoint import CheckpointFile
from store_core.state.store_lock import StoreLock

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.log.commit_log import ReadableLog

logger = logging.getLogger(__name__)


def cut_log(root: str, config: MessageStoreConfig, offset: int, *, clock: Callable[[], int]) -> str:
    """Erase the log after an offset; return the directory with a copy of that part.

    ``abort`` is created before the first change. So the next process that opens the store, also
    after a kill in between, recovers it, which cuts queues and index.

    Parameters
    ----------
    clock
        Returns ms since the epoch.

    Raises
    ------
    OffsetOutOfRangeError
        Nothing would be left, or the log ends before that offset.
    StoreLockedError
        Another process has the store open.
    StoreWriteError, StoreReadError
        A file cannot be read or written; the call may be repeated.
    """
    root = local_path(root)
    directory = StoreDirectory(root)
    with StoreLock(root) as lock, closing(CommitLog(directory, config)) as log:
        _require_within(log, offset)
        with closing(open_segments(root, config, log)) as segments:
            segments.load()
            lock.create_abort()
            kept = keep_cut_bytes(log, lock.root, offset, clock())
            _lower_checkpoint(log, lock.root, offset)
            logger.warning(
                "cutting the log at offset %d; the bytes after it are kept in %s", offset, kept
            )
            segments.truncate_dirty_files(offset)
        return kept


def _lower_checkpoint(log: ReadableLog, root: str, offset: int) -> None:
    """Lower the checkpoint's times and offsets to those of records that are not cut off.

    Records written later may have earlier times than the ones cut off, for example from another
    master. After a crash, recovery would then consider them flushed, and begin after them.
    """
    with closing(CheckpointFile(str(Path(root) / CHECKPOINT_FILE))) as checkpoint:
        checkpoint.load()
        newest, last_start = _newest_record(log, offset)
        if checkpoint.confirm_phy_offset >= offset:
            checkpoint.confirm_phy_offset = last_start
        checkpoint.physic_msg_timestamp = min(checkpoint.physic_msg_timestamp, newest)
        checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, newest)
        checkpoint.index_msg_timestamp = min(checkpoint.index_msg_timestamp, newest)
        if checkpoint.logics_physical_offset >= offset:
            checkpoint.logics_physical_offset = dispatched_before(log, offset)
        checkpoint.flush()


def _newest_record(log: ReadableLog, offset: int) -> tuple[int, int]:
    """Return the last segment's greatest store time (ms), and the start of its last record.

    The last segment with records before an offset counts; (0, 0) if there is none.
    """
    for segment in reversed([s for s in log.segments if s.from_offset < offset]):
        stop = min(offset, segment.from_offset + log.segments.file_size)
        begin = log.next_record(segment.from_offset, stop)
        if begin >= 0:
            newest = last = 0
            for frames in scan_frames(log, begin, stop, on_gap=skip_gap):
                newest = max(newest, int(frames.column("store_timestamp").max()))
                last = int(frames.column("commit_log_offset")[-1])
            return newest, last
    return 0, 0


def _require_within(log: ReadableLog, offset: int) -> None:
    segments = list(log.segments)
    begin = segments[0].from_offset if segments else 0
    stop = segments[-1].from_offset + segments[-1].size if segments else 0
    if not begin < offset <= stop:
        raise OffsetOutOfRangeError(
            f"the log cannot be cut at offset {offset}: its segments contain {begin} to {stop}, "
            "and something must remain"
        )
