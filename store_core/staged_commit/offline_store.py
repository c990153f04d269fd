"""A store that is opened only to commit: recovered, without services, closed right after."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable

from store_core.checkpoint_file import CheckpointFile
from store_core.commit_log import CommitLog
from store_core.consume_queue_store import ConsumeQueueStore
from store_core.dispatch_request import DispatchDecoder
from store_core.errors import LogDamageError
from store_core.files.store_directory import StoreDirectory
from store_core.index_dispatcher import IndexDispatcher
from store_core.recovery import LogRecovery, RecoveryParts, recover_log
from store_core.services.reput_message import ReputMessageService
from store_core.staged_commit.settle import clear_uncommitted, settle
from store_core.store_checkpoint import StoreCheckpoint, load_checkpoint
from store_core.store_lock import StoreLock
from store_core.store_recovery import open_segments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.codec.record_frames import RecordFrames
    from store_core.config import MessageStoreConfig
    from store_core.staged_commit.steps import Steps

_CATCH_UP_BYTES = 256 << 20


class OfflineStore:
    """Takes the store's lock, recovers the store, and serves `commit_job`.

    From opening to a clean `close`, ``abort`` is in place.

    Parameters
    ----------
    root
        Of the store; an empty directory is a store without messages.
    config
        Sizes of files.
    clock
        Returns ms since the epoch.
    steps
        Does the file operations on journals and staging.

    Raises
    ------
    StoreLockedError
        Somebody has the store open.
    LogDamageError
        A damaged record lies before readable ones.
    StoreError
        The store cannot be opened; the text says why.
    """

    def __init__(
        self, root: str, config: MessageStoreConfig, clock: Callable[[], int], steps: Steps
    ) -> None:
        self.root = root
        self._config, self._clock = config, clock
        self._lock = StoreLock(root)
        self._lock.acquire()
        try:
            last_exit_ok = not self._lock.is_aborted()
            self._clear_uncommitted(steps)
            directory = StoreDirectory(root)
            self._reader = CommitLog(directory, config)
            self.commit_log = open_segments(root, config, self._reader)
            self._queues = ConsumeQueueStore(root, config)
            self._index = IndexDispatcher(root, config, clock)
            self._decoder = DispatchDecoder(config.delay_levels_ms)
            self._reput = ReputMessageService(
                self.commit_log,
                [self._put_units, self._index.dispatch],
                lambda: self.commit_log.max_offset,
            )
            self._checkpoint = CheckpointFile(os.path.join(root, "checkpoint"))
            try:
                self._recover(last_exit_ok)
                settle(root, self.commit_log, steps)
            except BaseException:
                self._close_files()
                raise
        except BaseException:
            self._lock.release()
            raise

    def next_queue_offsets(self) -> Mapping[tuple[str, int], int]:
        """Return the next queue offset by (topic, queue id)."""
        simple, batch = self._queues.next_queue_offsets()
        return {**batch, **simple}

    def dispatch_all(self) -> None:
        """Make queue units and index entries of all that is in the log."""
        self._reput.finish()

    def flush_all(self) -> None:
        """Force queues, index and checkpoint to the disk."""
        self._queues.flush()
        self._index.flush()
        if self._reput.dispatched_timestamp:
            self._checkpoint.physic_msg_timestamp = self._reput.dispatched_timestamp
            self._checkpoint.logics_msg_timestamp = self._reput.dispatched_timestamp
        self._checkpoint.index_msg_timestamp = self._index.flushed_end_timestamp
        self._checkpoint.flush()

    def close(self, *, clean: bool) -> None:
        """Close all files and give the lock back.

        Parameters
        ----------
        clean
            All that is in the log is dispatched and flushed. False leaves ``abort``: whoever opens
            the store next recovers it as after a crash.
        """
        try:
            if clean:
                self.flush_all()
            self._close_files()
            if clean:
                self._lock.remove_abort()
        finally:
            self._lock.release()

    def _clear_uncommitted(self, steps: Steps) -> None:
        log = CommitLog(StoreDirectory(self.root), self._config)
        segments = open_segments(self.root, self._config, log)
        try:
            segments.load()
            clear_uncommitted(self.root, segments, steps)
        finally:
            segments.close()
            log.close()

    def _recover(self, last_exit_ok: bool) -> None:
        self.commit_log.load()
        self._queues.load()
        self._queues.recover(trusted=last_exit_ok)
        self._checkpoint.load()
        known = load_checkpoint(self._reader.directory) or StoreCheckpoint()
        parts = RecoveryParts(self._reader, self._queues, known, self._config, last_exit_ok)
        self._lock.create_abort()
        try:
            found = recover_log(parts, self.commit_log, root=self.root, clock=self._clock)
        except LogDamageError:
            if last_exit_ok:  # nothing was cut: it stays a store that was stopped cleanly
                self._queues.flush()
                self._lock.remove_abort()
            raise
        self._recover_index(found, known)
        self._reput.reput_from_offset = found.log_end
        if not last_exit_ok:
            self._checkpoint.physic_msg_timestamp = found.last_timestamp
            self._checkpoint.logics_msg_timestamp = found.last_timestamp

    def _recover_index(self, found: LogRecovery, known: StoreCheckpoint) -> None:
        self._index.load(
            self._reader,
            log_range=(max(self.commit_log.min_offset, 0), found.log_end),
            last_exit_ok=found.last_exit_ok,
            index_msg_timestamp=known.index_msg_timestamp or 0,
        )
        while self._index.catch_up(self._reader, found.log_end, _CATCH_UP_BYTES):
            pass

    def _put_units(self, frames: RecordFrames) -> None:
        self._queues.put(self._decoder.decode(frames).queued())

    def _close_files(self) -> None:
        files: tuple[Any, ...] = (self._index, self.commit_log, self._reader, self._checkpoint)
        for file in files:
            file.close()
