# SPDX-License-Identifier: Apache-2.0
"""Open the files of a store to write them: lock, load, recover, close.

Source: RocketMQ ``DefaultMessageStore.load``, ``shutdown`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from store_core.errors import LogDamageError, StoreConfigError, StoreFormatError
from store_core.files.byte_source import open_to_read
from store_core.files.file_writing import (
    make_directory,
    remove_tree,
    sync_data,
    write_error,
    write_errors,
)
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_dispatcher import IndexDispatcher
from store_core.index.index_entries import with_tag_index
from store_core.layout import (
    CHECKPOINT_FILE,
    CONSUME_QUEUE_DIR,
    INDEX_DIR,
    QUEUE_DIRS,
    TIMER_LOG_DIR,
    TIMER_WHEEL_FILE,
    wheel_snapshot,
)
from store_core.log.commit_log import (
    CommitLog,
    commit_log_directories,
    log_directories,
    open_segments,
)
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.queue_directories import queue_file_sizes
from store_core.recovery.lost_end import FilesWitness
from store_core.recovery.queue_repair import lost_queues
from store_core.recovery.recovery import LogRecovery, RecoveryParts, recover_log
from store_core.recovery.recovery_dispatch import index_keys
from store_core.recovery.recovery_plan import Loss
from store_core.staged_commit.resolve_open_jobs import resolve_open_jobs
from store_core.staged_commit.staging import CrashPoints, uncommitted_offset
from store_core.state.checkpoint import CheckpointFile, StoreCheckpoint, load_checkpoint
from store_core.state.store_lock import StoreLock
from store_core.state.store_state import require_writable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.index.index_file_set import IndexFileSet
    from store_core.progress import Progress
    from store_core.queue.dispatch_request import FilterBitmapsOf
    from store_core.queue.queue_directories import QueueFileSizes

logger = logging.getLogger(__name__)
_MOST_NAMED = 10
_CATCH_UP_BYTES = 256 << 20
_QUEUES_AND_INDEX = (INDEX_DIR, *QUEUE_DIRS)


@dataclass(frozen=True)
class OpenOptions:
    """Options of opening a store.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    progress
        Called with the bytes of the log that recovery has done so far, and their total.
    is_batch_topic
        Returns whether a topic has batch queues; if None, ``topics.json`` decides.
    filter_bitmaps
        Returns the filter bitmaps of extension units; None if there are none.
    """

    clock: Callable[[], int]
    progress: Progress | None = None
    cut: bool = False
    is_batch_topic: Callable[[str], bool] | None = None
    steps: CrashPoints = field(default_factory=CrashPoints)
    filter_bitmaps: FilterBitmapsOf | None = None
    trusts_confirmed: bool = False
    cuts_tail: bool = True


@dataclass
class StoreFiles:
    """The files of a store that this process writes: locked, recovered, without services.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    recovery, index_files
        The result of recovery; ``index_files`` is None if there is no index.
    last_dispatched
        Start and store time (ms) of the last record given to the queues since; None if none.
    is_flushed
        Whether `flush` was called.
    """

    config: MessageStoreConfig
    lock: StoreLock
    segments: MappedFileQueue
    queues: ConsumeQueueStore
    index: IndexDispatcher
    checkpoint: CheckpointFile
    clock: Callable[[], int]
    recovery: LogRecovery
    index_files: IndexFileSet | None
    last_dispatched: tuple[int, int] | None = None
    is_flushed: bool = False

    @property
    def root(self) -> str:
        """The store root."""
        return self.lock.root

    def next_queue_offsets(self) -> dict[tuple[str, int], int]:
        """Return the next queue offset by (topic, queue id)."""
        simple, batch = self.queues.next_queue_offsets()
        return {**batch, **simple}

    def complete_index(self) -> None:
        """Index the records that the index lacks."""
        if self.index.is_behind:
            with closing(CommitLog(StoreDirectory(self.root), self.config)) as log:
                while self.index.catch_up(log, self.recovery.log_end, _CATCH_UP_BYTES):
                    pass

    def flush(self) -> None:
        """Force queues, index and checkpoint to the disk."""
        with ThreadPoolExecutor(1, "index") as pool:
            indexed = pool.submit(self.index.flush)
            self.queues.flush()
            indexed.result()
        checkpoint, recovery = self.checkpoint, self.recovery
        last = (-1, 0)
        if self.last_dispatched is not None:
            last = self.last_dispatched
            checkpoint.confirm_phy_offset = last[0]
        elif not recovery.last_exit_ok and recovery.last_start >= 0:
            last = (recovery.last_start, recovery.last_timestamp)
        if last[1]:
            checkpoint.physic_msg_timestamp = last[1]
        checkpoint.set_dispatched(*last)
        checkpoint.hold_back(self.clock())  # the last record's time may be damaged
        checkpoint.index_msg_timestamp = self.index.flushed_end_timestamp
        checkpoint.flush()
        self.is_flushed = True

    def close(self, *, clean: bool) -> None:
        """Flush queues and index, close everything, release the lock.

        Raises
        ------
        StoreWriteError
            A file cannot be written or flushed; ``abort`` stays.
        """
        with write_errors(self.lock.root), ExitStack() as stack:
            stack.callback(self.lock.release)
            stack.callback(self.segments.close)
            stack.callback(self.checkpoint.close)
            with ExitStack() as closing_index:
                closing_index.callback(self.index.close)  # even if a queue cannot be flushed
                self.queues.close()
            if clean:
                self.lock.remove_abort()

    def destroy(self) -> None:
        """Delete log, queues, index and checkpoint, then ``abort``; release the lock."""
        with ExitStack() as stack:
            stack.callback(self.lock.release)
            stack.callback(self.checkpoint.close)
            stack.callback(self.segments.close)
            self.index.destroy()
            delete_files(self.lock, self.config)


def delete_files(lock: StoreLock, config: MessageStoreConfig) -> None:
    """Delete the files of a locked store, ``abort`` last; configuration files stay.

    Raises
    ------
    StoreWriteError
        A file cannot be deleted; the call may be repeated.
    """
    directory = StoreDirectory(lock.root)
    try:
        # The timer's files point into the log, too.
        for name in (TIMER_LOG_DIR, *_QUEUES_AND_INDEX, *commit_log_directories(directory, config)):
            remove_tree(directory.resolve(name))
        names = [entry.name for entry in directory.list(directory.resolve())]
        snapshots = [name for name in names if wheel_snapshot(name) is not None]
        for name in (*snapshots, TIMER_WHEEL_FILE, CHECKPOINT_FILE):
            Path(directory.resolve(name)).unlink(missing_ok=True)
    except OSError as err:
        raise write_error(err, str(err.filename or lock.root)) from err
    lock.remove_abort()


def open_store_files(config: MessageStoreConfig, options: OpenOptions) -> StoreFiles:
    """Lock, load and recover a store; create missing files.

    ``abort`` exists before the first change, so the store is recovered if it is opened after a
    crash.

    Raises
    ------
    StoreLockedError
        Another process or object has the store open.
    LogDamageError
        A damaged record precedes readable ones, or records at the end are lost, and ``cut`` is
        False.
    StoreKindError
        The store's log or queues are stored in another format than files of this kind.
    StoreFormatError, StoreConfigError
        Files and configuration contradict each other; a broker would not start either.
    StoreReadError, StoreWriteError
        A file cannot be read or written; the call may be repeated.
    """
    root = config.store_path_root_dir
    directory = StoreDirectory(root)
    if not directory.is_local:
        text = f"{directory.uri}: only a store on this machine can be opened to write or serve it"
        raise StoreConfigError(text)
    if not root:
        raise StoreFormatError("storePathRootDir must be a local directory", root)
    require_writable(directory)
    lock = StoreLock(root)
    with write_errors(lock.path):
        lock.acquire()
    try:
        with write_errors(root):
            return _open(config, options, directory, lock)
    except BaseException:
        lock.release()
        raise


def _open(
    config: MessageStoreConfig, options: OpenOptions, directory: StoreDirectory, lock: StoreLock
) -> StoreFiles:
    root = config.store_path_root_dir
    if lock.is_aborted():  # possibly by a failed flush
        # The log first: units of records that are not on the disk would look like damage.
        names = (*commit_log_directories(directory, config), *_QUEUES_AND_INDEX)
        drop_cached_pages(directory.resolve(name) for name in names)
    _clear_uncommitted(config, directory, options.steps)
    with ExitStack() as undo:
        log = undo.enter_context(closing(CommitLog(directory, config)))
        segments = open_segments(root, config, log)
        undo.callback(segments.close)
        segments.load()
        config = with_tag_index(config, directory, log)
        index = IndexDispatcher(root, config, options.clock)
        parts = recovery_parts(config, options, log, last_exit_ok=not lock.is_aborted())
        if parts.last_exit_ok:
            lock.create_abort()
        dispatched = parts.queues.dispatch_from
        recovery = _recover(parts, segments, lock, options)
        recovery = _with_lost_queues(parts, recovery, dispatched)
        _make_directories(directory, config)
        resolve_open_jobs(root, segments, options.steps)
        files = index.load(parts.recovered(segments.min_offset, recovery.log_end))
        undo.callback(index.close)
        config = _with_sizes(config, segments.file_size, queue_file_sizes(directory, config), files)
        checkpoint = _checkpoint(
            config, recovery, index if files is not None else None, options.clock()
        )
        if parts.keys is not None:
            parts.keys.give(index)
        undo.pop_all()
    log.close()
    return StoreFiles(
        config=config,
        lock=lock,
        segments=segments,
        queues=parts.queues,
        index=index,
        checkpoint=checkpoint,
        clock=options.clock,
        recovery=recovery,
        index_files=files,
    )


def recovery_parts(
    config: MessageStoreConfig, options: OpenOptions, log: CommitLog, *, last_exit_ok: bool
) -> RecoveryParts:
    """Load the parts of a store that recovery needs; changes nothing."""
    root = config.store_path_root_dir
    directory = StoreDirectory(root)
    queues = ConsumeQueueStore(
        root,
        config,
        is_batch_topic=options.is_batch_topic,
        filter_bitmaps=options.filter_bitmaps,
    )
    queues.load()
    queues.recover(trusted=last_exit_ok)
    checkpoint = load_checkpoint(directory) or StoreCheckpoint()
    return RecoveryParts(
        log=log,
        queues=queues,
        checkpoint=checkpoint,
        config=config,
        last_exit_ok=last_exit_ok,
        progress=options.progress,
        keys=index_keys(directory, config, checkpoint, last_exit_ok=last_exit_ok),
        trusts_confirmed=options.trusts_confirmed,
        witness=FilesWitness(
            directory,
            config,
            checkpoint,
            stopped_cleanly=last_exit_ok,
            knows_forced=not config.is_slave,
            reach=queues.max_physic_offset,
        ),
    )


def _clear_uncommitted(
    config: MessageStoreConfig, directory: StoreDirectory, steps: CrashPoints
) -> None:
    """Erase bytes that a staged job wrote after the end of the log and did not commit."""
    with closing(CommitLog(directory, config)) as log:
        offset = uncommitted_offset(directory, log)
        if offset is None:
            return
        segments = open_segments(directory.resolve(), config, log)
    with closing(segments):
        segments.load()
        logger.warning("erasing the bytes of an uncommitted staged job from offset %d on", offset)
        steps.run("clear uncommitted", segments.truncate_dirty_files, offset)


def _checkpoint(
    config: MessageStoreConfig,
    recovery: LogRecovery,
    index: IndexDispatcher | None,
    now_ms: int,
) -> CheckpointFile:
    checkpoint = CheckpointFile(str(Path(config.store_path_root_dir) / CHECKPOINT_FILE))
    checkpoint.load()
    checkpoint.for_5_5 |= config.enable_accelerated_recovery or bool(config.tag_index_enable)
    if recovery.last_start >= 0:
        checkpoint.confirm_phy_offset = recovery.last_start
    if not recovery.last_exit_ok or recovery.loss is not Loss.NOTHING:
        _forget_what_is_gone(checkpoint, recovery)
    if checkpoint.hold_back(now_ms):
        checkpoint.flush()
    if index is not None and index.flushed_end_timestamp < checkpoint.index_msg_timestamp:
        # Before the files are rebuilt: otherwise a crash leaves half files that pass for flushed.
        checkpoint.index_msg_timestamp = index.flushed_end_timestamp
        checkpoint.flush()
    return checkpoint


def _forget_what_is_gone(checkpoint: CheckpointFile, recovery: LogRecovery) -> None:
    """Lower the checkpoint's values to the end of the log, so that a loss is reported once."""
    last = recovery.last_timestamp if recovery.last_start >= 0 else 0
    checkpoint.confirm_phy_offset = max(recovery.last_start, 0)
    checkpoint.physic_msg_timestamp = min(checkpoint.physic_msg_timestamp, last)
    checkpoint.logics_msg_timestamp = min(checkpoint.logics_msg_timestamp, last)
    checkpoint.flush()


def _with_sizes(
    config: MessageStoreConfig, segment: int, queue: QueueFileSizes, index: IndexFileSet | None
) -> MessageStoreConfig:
    slots, entries = index.sizes if index is not None else (None, None)
    return replace(
        config,
        mapped_file_size_commit_log=segment,
        mapped_file_size_consume_queue=queue.simple,
        mapped_file_size_consume_queue_ext=queue.ext,
        mapper_file_size_batch_consume_queue=queue.batch,
        max_hash_slot_num=slots or config.max_hash_slot_num,
        max_index_num=entries or config.max_index_num,
    )


def _make_directories(directory: StoreDirectory, config: MessageStoreConfig) -> None:
    """Create the directories of a new store, as RocketMQ does: its cleaner checks their disks."""
    for name in (CONSUME_QUEUE_DIR, *log_directories(directory, config)[0]):
        path = os.path.abspath(directory.resolve(name))  # noqa: PTH100 (links stay as they are)
        try:
            make_directory(path)
        except OSError as err:
            raise write_error(err, path) from err


def _with_lost_queues(
    parts: RecoveryParts, recovery: LogRecovery, dispatched_offset: int
) -> LogRecovery:
    """Add the queues that lost units while the store was stopped, and log them.

    Recovery adds to queues only units after the offset up to which the log was dispatched.
    """
    if not recovery.last_exit_ok:
        return recovery
    part = (recovery.start_offset, min(dispatched_offset, recovery.log_end))
    lost = lost_queues(parts.queues, parts.log, part)
    for topic, queue_id in lost[:_MOST_NAMED]:
        logger.warning("queue %d of topic %s lacks units of messages that are in the log: it was "
                       "lost, or its topic was deleted. `rocketmq-store rebuild-queues` rebuilds "
                       "the queues from the log", queue_id, topic)  # fmt: skip
    if len(lost) > _MOST_NAMED:
        logger.warning("%d more queues lack units, too", len(lost) - _MOST_NAMED)
    return replace(recovery, queues_lost=lost)


def _recover(
    parts: RecoveryParts, segments: MappedFileQueue, lock: StoreLock, options: OpenOptions
) -> LogRecovery:
    try:
        return recover_log(
            parts,
            segments,
            root=lock.root,
            clock=options.clock,
            cut=options.cut,
            cuts_tail=options.cuts_tail,
        )
    except LogDamageError:
        if parts.last_exit_ok:  # nothing was cut: the store still counts as stopped cleanly
            parts.queues.flush()
            lock.remove_abort()
        raise


def drop_cached_pages(directories: Iterable[str]) -> None:
    """Force all files of directories to the disk, one by one, and drop their cached pages.

    Linux marks pages that it failed to write as clean and goes on showing them: a process that
    starts after a failed flush would take them for the disk's content, and its own flushes would
    not write them. Pages that another process has mapped stay cached, and all pages do on systems
    without ``posix_fadvise``.

    Raises
    ------
    StoreWriteError
        A file cannot be forced; the next attempt reads what is on the disk.
    """
    for directory in directories:
        for base, _, names in os.walk(directory):
            for name in names:
                _drop_pages_of(f"{base}/{name}")


def _drop_pages_of(path: str) -> None:
    try:
        fd = open_to_read(path)
    except OSError:  # a reader of the file will raise
        return
    try:
        sync_data(fd)
    except OSError as err:
        raise write_error(err, path) from err
    finally:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
