"""The files of a store that this process writes: locked, loaded, recovered, closed.

Source: RocketMQ ``DefaultMessageStore.load``, ``shutdown`` (release 5.3.3).
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from store_core.checkpoint_file import CheckpointFile
from store_core.commit_log import (
    SEGMENT_SIZE_OPTION,
    CommitLog,
    commit_log_directories,
)
from store_core.consume_queue_store import ConsumeQueueStore
from store_core.errors import LogDamageError, StoreFormatError
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.store_directory import StoreDirectory
from store_core.index_dispatcher import IndexDispatcher
from store_core.recovery import LogRecovery, RecoveryParts, recover_log
from store_core.store_checkpoint import StoreCheckpoint, load_checkpoint
from store_core.store_lock import StoreLock

if TYPE_CHECKING:
    from store_core.config import MessageStoreConfig
    from store_core.index_file_set import IndexFileSet
    from store_core.recovery import Progress


DEFAULT_SEGMENT_BYTES = 1 << 30


@dataclass(frozen=True)
class OpenOptions:
    """How a store is opened.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    progress
        Called with the bytes of the log that recovery has done, and all of them.
    cut
        Cut off readable records behind damage; a copy is kept.
    is_batch_topic
        Whether a topic has batch queues; None: as ``topics.json`` says.
    """

    clock: Callable[[], int]
    progress: Progress | None = None
    cut: bool = False
    is_batch_topic: Callable[[str], bool] | None = None


@dataclass(frozen=True)
class StoreParts:
    """An open store: the lock is held, and log, queues and offsets agree.

    Attributes
    ----------
    config
        With the sizes of the files that are there.
    recovery, index_files
        What recovery did; None: there is no index.
    """

    config: MessageStoreConfig
    lock: StoreLock
    segments: MappedFileQueue
    queues: ConsumeQueueStore
    index: IndexDispatcher
    checkpoint: CheckpointFile
    recovery: LogRecovery
    index_files: IndexFileSet | None

    def close(self, *, clean: bool) -> None:
        """Flush queues and index, close everything, give the lock back.

        Parameters
        ----------
        clean
            Take ``abort`` away, when all of that went well: log and checkpoint are flushed.
        """
        with ExitStack() as stack:
            stack.callback(self.lock.release)
            stack.callback(self.segments.close)
            stack.callback(self.checkpoint.close)
            self.queues.close()
            self.index.close()
            if clean:
                self.lock.remove_abort()

    def destroy(self) -> None:
        """Delete log, queues, index and checkpoint, then ``abort``; give the lock back."""
        with ExitStack() as stack:
            stack.callback(self.lock.release)
            stack.callback(self.checkpoint.close)
            self.index.destroy()
            self.queues.destroy()
            self.segments.destroy()
            Path(self.checkpoint.path).unlink(missing_ok=True)
            self.lock.remove_abort()


def open_parts(config: MessageStoreConfig, options: OpenOptions) -> StoreParts:
    """Lock a store, load it and recover it; what is missing is made.

    ``abort`` is in place from before the first change on: whoever opens the store after a crash
    has to recover it.

    Raises
    ------
    StoreLockedError
        Somebody has it open.
    LogDamageError
        A damaged record lies before readable ones, and ``cut`` is not given.
    StoreFormatError, StoreConfigError
        Files and configuration do not fit; a broker would not start either.
    StoreReadError, StoreWriteError
        A file cannot be read or written; the call may be repeated.
    """
    root = config.store_path_root_dir
    directory = StoreDirectory(root)
    if not root or not directory.is_local:
        raise StoreFormatError("storePathRootDir must be a local directory", root)
    lock = StoreLock(root)
    lock.acquire()
    try:
        return _open(config, options, directory, lock)
    except BaseException:
        lock.release()
        raise


def _open(
    config: MessageStoreConfig, options: OpenOptions, directory: StoreDirectory, lock: StoreLock
) -> StoreParts:
    root = config.store_path_root_dir
    with ExitStack() as undo:
        log = undo.enter_context(closing(CommitLog(directory, config)))
        segments = open_segments(root, config, log)
        undo.callback(segments.close)
        segments.load()
        queues = ConsumeQueueStore(root, config, is_batch_topic=options.is_batch_topic)
        queues.load()
        last_exit_ok = not lock.is_aborted()
        queues.recover(trusted=last_exit_ok)
        before = load_checkpoint(directory) or StoreCheckpoint()
        parts = RecoveryParts(log, queues, before, config, last_exit_ok, options.progress)
        if last_exit_ok:
            lock.create_abort()
        recovery = _recover(parts, segments, lock, options)
        index = IndexDispatcher(root, config, options.clock)
        files = index.load(
            log,
            log_range=(max(segments.min_offset, 0), recovery.log_end),
            last_exit_ok=last_exit_ok,
            index_msg_timestamp=before.index_msg_timestamp or 0,
        )
        undo.callback(index.close)
        if files is not None:
            slots, entries = files.sizes
            config = replace(config, max_hash_slot_num=slots, max_index_num=entries)
        checkpoint = _checkpoint(root, recovery, index if files is not None else None)
        undo.pop_all()
    log.close()
    return StoreParts(config, lock, segments, queues, index, checkpoint, recovery, files)


def _checkpoint(root: str, recovery: LogRecovery, index: IndexDispatcher | None) -> CheckpointFile:
    checkpoint = CheckpointFile(str(Path(root) / "checkpoint"))
    checkpoint.load()
    if recovery.last_start >= 0:
        checkpoint.confirm_phy_offset = recovery.last_start
    if index is not None and index.flushed_end_timestamp < checkpoint.index_msg_timestamp:
        # Before they are made again: else a crash leaves half files that are taken for flushed.
        checkpoint.index_msg_timestamp = index.flushed_end_timestamp
        checkpoint.flush()
    return checkpoint


def open_segments(root: str, config: MessageStoreConfig, log: CommitLog) -> MappedFileQueue:
    """Return the writable segments of a store, not loaded.

    Their size is the configured one, else that of the files, else RocketMQ's default.
    """
    directory = StoreDirectory(root)
    writable = replace(config, read_only_commit_log_store_paths=None)
    read_only = set(commit_log_directories(directory, config)) - set(
        commit_log_directories(directory, writable)
    )
    size = config.mapped_file_size_commit_log or log.segments.file_size or DEFAULT_SEGMENT_BYTES
    return MappedFileQueue(
        commit_log_directories(directory, writable),
        size,
        option=SEGMENT_SIZE_OPTION,
        read_only_directories=read_only,
    )


def _recover(
    parts: RecoveryParts, segments: MappedFileQueue, lock: StoreLock, options: OpenOptions
) -> LogRecovery:
    try:
        return recover_log(parts, segments, root=lock.root, clock=options.clock, cut=options.cut)
    except LogDamageError:
        if parts.last_exit_ok:  # nothing was cut: it stays a store that was stopped cleanly
            parts.queues.flush()
            lock.remove_abort()
        raise
