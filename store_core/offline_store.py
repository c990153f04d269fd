"""A store that is opened only to commit: recovered, without services, closed right after."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Callable

from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.services.reput_message import ReputMessageService
from store_core.store_files import OpenOptions, open_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.recovery.recovery import LogRecovery
    from store_core.staged_commit.crash_points import CrashPoints
    from store_core.staged_commit.dispatch import JobRows
    from store_core.staged_commit.intent import Commit
    from store_core.staged_commit.job import StagedJob

_CATCH_UP_BYTES = 256 << 20


class OfflineStore:
    """Takes the store's lock, recovers the store, and serves `commit_job`.

    From opening to a clean `close`, ``abort`` is in place.

    Parameters
    ----------
    root
        Of the store; an empty directory is a store without messages.
    clock
        Returns ms since the epoch.

    Raises
    ------
    StoreLockedError
        Somebody has the store open.
    LogDamageError
        A damaged record lies before readable ones: nothing is cut that was a message.
    StoreError
        The store cannot be opened; the text says why.
    """

    def __init__(
        self, root: str, config: MessageStoreConfig, clock: Callable[[], int], steps: CrashPoints
    ) -> None:
        config = replace(config, store_path_root_dir=root)
        self.root, self._clock = config.store_path_root_dir, clock
        options = OpenOptions(clock, steps=steps, trusts_confirmed=True, cuts_tail=False)
        self._parts = open_parts(config, options)
        self._last: tuple[int, int] | None = None
        self._is_flushed = False
        try:
            self._index_what_is_missing()
        except BaseException:
            self._parts.close(clean=False)
            raise

    @property
    def recovery(self) -> LogRecovery:
        """What opening it did."""
        return self._parts.recovery

    @property
    def commit_log(self) -> MappedFileQueue:
        """The segments; their end is the end of the log."""
        return self._parts.segments

    def next_queue_offsets(self) -> Mapping[tuple[str, int], int]:
        """Return the next queue offset by (topic, queue id)."""
        simple, batch = self._parts.queues.next_queue_offsets()
        return {**batch, **simple}

    def dispatch(self, job: StagedJob, commit: Commit, rows: Iterable[JobRows]) -> None:
        """Make queue units and index entries of a job whose records are in the log."""
        parts, self._is_flushed = self._parts, False
        if job.is_multi_dispatch:
            self._decode_and_dispatch(commit)
            return
        with ThreadPoolExecutor(1, "index") as pool:
            indexed: Future[None] | None = None
            for some in rows:
                if indexed is not None:
                    indexed.result()
                indexed = pool.submit(parts.index.dispatch_entries, some.entries, some.end_offset)
                parts.queues.put(some.requests)
                self._last = (some.last_start, commit.store_timestamp)
            parts.queues.flush()  # the index takes longer
            if indexed is not None:
                indexed.result()

    def flush_all(self) -> None:
        """Force queues, index and checkpoint to the disk."""
        parts = self._parts
        with ThreadPoolExecutor(1, "index") as pool:
            indexed = pool.submit(parts.index.flush)
            parts.queues.flush()
            indexed.result()
        checkpoint = parts.checkpoint
        last = (-1, 0)
        if self._last is not None:
            last = self._last
            checkpoint.confirm_phy_offset = last[0]
        elif not parts.recovery.last_exit_ok and parts.recovery.last_start >= 0:
            last = (parts.recovery.last_start, parts.recovery.last_timestamp)
        if last[1]:
            checkpoint.physic_msg_timestamp = last[1]
        checkpoint.set_dispatched(*last)
        checkpoint.hold_back(self._clock())  # the last record's time may be damaged
        checkpoint.index_msg_timestamp = parts.index.flushed_end_timestamp
        checkpoint.flush()
        self._is_flushed = True

    def close(self, *, clean: bool) -> None:
        """Close all files and give the lock back."""
        try:
            if clean and not self._is_flushed:
                self.flush_all()
        except BaseException:
            clean = False
            raise
        finally:
            self._parts.close(clean=clean)

    def _decode_and_dispatch(self, commit: Commit) -> None:
        parts = self._parts
        decoder = DispatchDecoder(parts.config.delay_levels_ms, parts.queues.filter_bitmaps)

        def put_units(frames: RecordFrames) -> None:
            parts.queues.put(decoder.decode(frames).queued())
            self._last = (int(frames.column("commit_log_offset")[-1]), commit.store_timestamp)

        log = parts.segments
        reput = ReputMessageService(log, [put_units, parts.index.dispatch], lambda: log.max_offset)
        reput.reput_from_offset = commit.start_offset
        reput.finish()

    def _index_what_is_missing(self) -> None:
        parts = self._parts
        if not parts.index.is_behind:
            return
        with closing(CommitLog(StoreDirectory(self.root), parts.config)) as log:
            while parts.index.catch_up(log, parts.recovery.log_end, _CATCH_UP_BYTES):
                pass
