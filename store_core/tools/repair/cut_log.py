"""Cut the log of a store that was stopped, at the end of a record; a copy of the rest is kept."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Callable

from store_core.errors import OffsetOutOfRangeError
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog, open_segments
from store_core.recovery.saved_truncation import keep_cut_bytes
from store_core.state.store_lock import StoreLock

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.log.readable_log import ReadableLog

logger = logging.getLogger(__name__)


def cut_log(root: str, config: MessageStoreConfig, offset: int, *, clock: Callable[[], int]) -> str:
    """Erase all of the log after an offset; return the directory with a copy of it.

    ``abort`` is in place from before the first change on: whoever opens the store next, also
    after a kill in between, recovers it, which cuts queues and index.

    Parameters
    ----------
    root, config
        The store, a local directory that nobody has open.
    offset
        Where a record of the log ends, after its beginning.
    clock
        Returns ms since the epoch.

    Raises
    ------
    OffsetOutOfRangeError
        Nothing would be left, or the log ends before.
    StoreLockedError
        Somebody has the store open.
    StoreWriteError, StoreReadError
        A file cannot be read or written; the call may be repeated.
    """
    directory = StoreDirectory(root)
    with StoreLock(root) as lock, closing(CommitLog(directory, config)) as log:
        _require_within(log, offset)
        with closing(open_segments(root, config, log)) as segments:
            segments.load()
            lock.create_abort()
            kept = keep_cut_bytes(log, lock.root, offset, clock())
            logger.warning("the log is cut at offset %d; what lay after it is in %s", offset, kept)
            segments.truncate_dirty_files(offset)
        return kept


def _require_within(log: ReadableLog, offset: int) -> None:
    segments = list(log.segments)
    begin = segments[0].from_offset if segments else 0
    stop = segments[-1].from_offset + segments[-1].size if segments else 0
    if not begin < offset <= stop:
        raise OffsetOutOfRangeError(
            f"the log cannot be cut at offset {offset}: its segments have {begin} to {stop}, and "
            "something must be left"
        )
