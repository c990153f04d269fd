# SPDX-License-Identifier: Apache-2.0
"""Rebuild the index or the queues of a store, in the store itself.

The new files are written to ``_rebuild`` below the root and flushed; then the new directories
replace the old ones. RocketMQ ignores ``_rebuild``; the next rebuild removes what a killed one
left.
"""

from __future__ import annotations

import logging
import os
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Callable, NamedTuple

from store_core.codec.message_batch_codec import MessageColumns
from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import StoreConfigError, StoreFormatError, StoreLockedError
from store_core.files.file_writing import (
    flush_directory,
    put_in_place,
    remove_tree,
    restore,
    take_away,
    write_errors,
)
from store_core.files.store_directory import StoreDirectory, local_path
from store_core.index.index_entries import index_entries, with_tag_index
from store_core.index.index_file import INDEX_SIZE_OPTIONS
from store_core.index.index_writer import IndexWriter, index_file_names
from store_core.layout import (
    ABORT_FILE,
    BATCH_CONSUME_QUEUE_DIR,
    CHECKPOINT,
    CHECKPOINT_FILE,
    CONSUME_QUEUE_DIR,
    CONSUME_QUEUE_EXT_DIR,
    INDEX_DIR,
)
from store_core.log.commit_log import scan_log
from store_core.log.log_scan import Gap
from store_core.recovery.recovery_plan import lost_end_error
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.checkpoint import CheckpointFile
from store_core.state.store_lock import StoreLock
from store_core.state.store_state import StoreState, require_queue_files
from store_core.tools.repair.keep_queues import keep_queues_without_records, set_queue_file_times
from store_core.tools.repair.rebuild_consume_queue import RebuildOptions, rebuild_consume_queues
from store_core.tools.repair.rebuild_losses import QueueLoss, rebuild_losses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.progress import Progress
    from store_core.tools.repair.rebuild_consume_queue import RebuildResult

logger = logging.getLogger(__name__)
WORK_DIRECTORY = "_rebuild"
_NEW, _OLD = "new", "old"
_QUEUES_TOLD = 10
_LOSS_WORDS = ("lost", "of an earlier topic of this name", "moved")
_UNFINISHED = "index.rebuilding"


class RebuiltQueues(NamedTuple):
    """Result of a rebuild of the queues."""

    result: RebuildResult
    kept: int
    losses: dict[tuple[str, int], QueueLoss]


def rebuild_index_in_place(
    root: str,
    config: MessageStoreConfig,
    *,
    clock: Callable[[], int],
    progress: Progress | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> RebuiltIndex:
    """Rebuild the index of a store from its log; a kill leaves either the old or the new one.

    The checkpoint's ``indexMsgTimestamp`` is set to the end of the newest full file, unless the
    log has gaps.

    Parameters
    ----------
    clock
        Returns the time in ms, from which the files get their names.
    progress
        Called with the bytes of the log done and their total.
    warn
        Called with a message about files left to delete; in `rebuild_queues_in_place` also about
        queues that can have no directory.

    Raises
    ------
    StoreLockedError
        A broker or another process has the store open.
    StoreKindError
        Its queues are in a database; likewise in `rebuild_queues_in_place`.
    StoreConfigError
        The sizes of the index files are unknown, or the store is not on this machine.
    StoreWriteError
        A file cannot be written; the old index is in place.
    """
    with _opened(root, config, warn) as (view, work):
        sizes = _index_sizes(view)
        rebuilt = rebuild_index(view, work.new, *sizes, clock, progress)
        work.put(INDEX_DIR)
        if not rebuilt.gaps:  # else recovery may cut the log before the end of a full file
            _set_index_timestamp(view, rebuilt.flushed_end_timestamp)
        return rebuilt


def rebuild_queues_in_place(
    root: str,
    config: MessageStoreConfig,
    *,
    accept_moved: bool = False,
    accept_lost: bool = False,
    progress: Progress | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> RebuiltQueues:
    """Rebuild all queues of a store from its log; a kill leaves old or new ones.

    Old extension units are moved away first, and new ones put in place after their queues: a kill
    in between leaves queues without them, and filters let all of their messages pass.

    Raises
    ------
    StoreLockedError
        A broker or another process has the store open.
    StoreFormatError
        Consumers would lose messages, or messages would move, and that was not accepted.
    StoreWriteError
        A file cannot be written; the old queues are in place.
    """
    with _opened(root, config, warn) as (view, work):
        had_ext = work.left_ext or (work.root / CONSUME_QUEUE_EXT_DIR).is_dir()
        options = RebuildOptions(consume_queue_ext=had_ext, warn=warn)
        result = rebuild_consume_queues(view, str(work.new), options, progress)
        losses = rebuild_losses(view, work.new, result)
        _require_accepted(losses, str(work.root), moved=accept_moved, lost=accept_lost)
        set_queue_file_times(view, work.new)
        kept = keep_queues_without_records(view, work.new)
        work.set_aside(CONSUME_QUEUE_EXT_DIR)
        work.put(CONSUME_QUEUE_DIR)
        work.put(CONSUME_QUEUE_EXT_DIR)
        work.put(BATCH_CONSUME_QUEUE_DIR)
        return RebuiltQueues(result, kept, losses)


def plan_queues(
    root: str,
    config: MessageStoreConfig,
    progress: Progress | None = None,
    warn: Callable[[str], None] = logger.warning,
) -> RebuiltQueues:
    """Return what `rebuild_queues_in_place` would do if all were accepted; changes nothing.

    The queues are built in a temporary directory, which needs as much space as they do.

    Raises
    ------
    StoreKindError, StoreConfigError, StoreWriteError
        As `rebuild_queues_in_place`.
    """
    with StoreSnapshot(root, config) as view, TemporaryDirectory() as target:
        view.kind.require_commit_log()
        require_queue_files(view.directory, "nothing can be rebuilt in it")
        has_ext = view.directory.stat(view.directory.resolve(CONSUME_QUEUE_EXT_DIR)) is not None
        options = RebuildOptions(consume_queue_ext=has_ext, warn=warn)
        with write_errors(target):
            result = rebuild_consume_queues(view, target, options, progress)
            losses = rebuild_losses(view, Path(target), result)
            return RebuiltQueues(result, keep_queues_without_records(view, Path(target)), losses)


def loss_text(losses: Mapping[tuple[str, int], QueueLoss]) -> str:
    """Return in words what consumers lose through a rebuild, queue by queue."""
    told = []
    for (topic, queue_id), loss in islice(losses.items(), _QUEUES_TOLD):
        counts = [f"{count} {word}" for count, word in zip(loss, _LOSS_WORDS) if count]
        told.append(f"{topic}/{queue_id}: {', '.join(counts)}")
    more = len(losses) - len(told)
    return "; ".join(told) + (f"; and {more} more queues" if more > 0 else "")


def _require_accepted(
    losses: Mapping[tuple[str, int], QueueLoss], root: str, *, moved: bool, lost: bool
) -> None:
    """Raise if messages would be lost or moved and the caller did not accept that."""
    gone = sum(loss.lost + loss.earlier for loss in losses.values())
    away = sum(loss.moved for loss in losses.values())
    wanted = []
    if gone and not lost:
        wanted.append(
            f"{gone} messages that are in the log would be in no queue (accept_lost, --accept-lost)"
        )
    if away and not moved:
        wanted.append(
            f"{away} messages would get queue offsets other than those that consumers know "
            "(accept_moved, --accept-moved)"
        )
    if wanted:
        raise StoreFormatError(
            f"{'; '.join(wanted)}; nothing was changed. By queue: {loss_text(losses)}. Accept "
            "this, or restore damaged files of the log",
            root,
        )


class _Work:
    """The directory ``_rebuild`` of a store."""

    def __init__(self, root: Path, warn: Callable[[str], None]) -> None:
        self.root, self._warn = root, warn
        self._path = root / WORK_DIRECTORY
        self.new = self._path / _NEW
        self._old = self._path / _OLD
        self.left_ext = (self._old / CONSUME_QUEUE_EXT_DIR).is_dir()

    def prepare(self) -> None:
        """Undo a killed rebuild, and create the directories."""
        self._restore()
        remove_tree(str(self._path))
        self.new.mkdir(parents=True)
        self._old.mkdir()
        flush_directory(str(self.root))

    def clean(self) -> None:
        """Remove the directory, after restoring old directories that were not replaced."""
        self._restore()
        try:
            remove_tree(str(self._path))
        except OSError as err:  # all is in its place: the next rebuild tries again
            self._warn(f"{self._path} cannot be deleted: {err.strerror}; delete it yourself")

    def _restore(self) -> None:
        for name in (INDEX_DIR, CONSUME_QUEUE_DIR, BATCH_CONSUME_QUEUE_DIR):
            restore(str(self.root / name), str(self._old / name))

    def put(self, name: str) -> None:
        """Put a new directory in place; if there is none, only move the old one away."""
        target, aside = str(self.root / name), str(self._old / name)
        if (self.new / name).is_dir():
            put_in_place(str(self.new / name), target, aside)
        else:
            take_away(target, aside)

    def set_aside(self, name: str) -> None:
        """Move an old directory away."""
        take_away(str(self.root / name), str(self._old / name))


@contextmanager
def _opened(
    root: str, config: MessageStoreConfig, warn: Callable[[str], None]
) -> Iterator[tuple[StoreSnapshot, _Work]]:
    """Open and lock a store that no other process has open; remove ``_rebuild`` at the end."""
    directory = StoreDirectory(root)
    if not directory.is_local:
        raise StoreConfigError(f"{directory.uri}: only a store on this machine can be changed")
    path = os.path.abspath(local_path(root))  # noqa: PTH100 (links stay as they are)
    with StoreSnapshot(directory, config) as view:
        view.kind.require_commit_log()
        _require_log_end(view)
        if view.state is StoreState.LIVE:
            raise StoreLockedError("a broker has the store open; stop that broker first", path)
        require_queue_files(view.directory, "nothing can be rebuilt in it")
        seen = _run_of_a_broker(view)
        with StoreLock(path):
            if _run_of_a_broker(view) != seen:
                raise StoreLockedError("a broker has just used the store; try again", path)
            with write_errors(path):
                work = _Work(Path(path), warn)
                try:
                    work.prepare()
                    yield view, work
                except (Exception, KeyboardInterrupt):  # half-built files are useless
                    work.clean()
                    raise
                work.clean()


def _require_log_end(view: StoreSnapshot) -> None:
    """Raise if the log has lost its end: rebuilt files would no longer show that."""
    if view.lost_end is not None:
        raise lost_end_error(view.log, view.lost_end)


def _run_of_a_broker(view: StoreSnapshot) -> tuple[object, ...]:
    names = (ABORT_FILE, CHECKPOINT_FILE)
    return tuple(view.directory.stat(view.directory.resolve(name)) for name in names)


def _index_sizes(view: StoreSnapshot) -> tuple[int, int]:
    index, config = view.index, view.config
    if index.sizes is not None:
        return index.sizes
    if index.unusable:
        raise StoreConfigError(
            f"{index.unusable[0].path}: the numbers of slots and entries are not known; give "
            f"{INDEX_SIZE_OPTIONS}"
        )
    return (
        config.max_hash_slot_num or DEFAULT_MAX_HASH_SLOT_NUM,
        config.max_index_num or DEFAULT_MAX_INDEX_NUM,
    )


def _set_index_timestamp(view: StoreSnapshot, timestamp_ms: int) -> None:
    """Write ``indexMsgTimestamp``: after a crash RocketMQ drops files that end after it."""
    path = view.directory.resolve(CHECKPOINT_FILE)
    entry = view.directory.stat(path)
    if entry is None or entry.size < CHECKPOINT.size:
        return
    with closing(CheckpointFile(path)) as checkpoint:
        checkpoint.load()
        checkpoint.index_msg_timestamp = timestamp_ms
        checkpoint.flush()


class RebuiltIndex(NamedTuple):
    """Result of a rebuild of the index."""

    files: tuple[str, ...]
    """Names of the index files, oldest first."""
    records: int
    entries: int
    gaps: tuple[Gap, ...]
    """Damaged parts of the log, whose records are not indexed."""
    flushed_end_timestamp: int
    """End time (ms) of the newest full file, for ``indexMsgTimestamp``; 0 if there is none."""


def rebuild_index(
    view: StoreSnapshot,
    target_root: Path,
    max_hash_slot_num: int,
    max_index_num: int,
    clock: Callable[[], int],
    progress: Callable[[int, int], None] | None = None,
) -> RebuiltIndex:
    """Write and flush the whole index of a log below a store root, or nothing.

    The files are those of a RocketMQ that dispatched the log from its first record without a stop;
    their names come from the clock. They all appear in one step, because RocketMQ and readers trust
    the files in ``index``: there must never be half an index.

    Parameters
    ----------
    target_root
        A store root, the same or another; its ``index`` is missing or empty.
    clock
        Returns the time in ms.
    progress
        Called with the bytes of the log done and their total: after every batch, and at the end.

    Raises
    ------
    StoreFormatError
        ``index`` is not empty.
    StoreConfigError
        The sizes are impossible.
    StoreReadError
        The log cannot be read.
    OSError
        A file cannot be written; there is no ``index`` then.
    """
    unfinished = _unfinished_directory(target_root)
    with IndexWriter(unfinished, max_hash_slot_num, max_index_num, clock) as writer:
        records, entries, gaps = _write_entries(view, writer, progress)
    names = tuple(index_file_names(_put_in_place(unfinished, target_root)))
    return RebuiltIndex(names, records, entries, gaps, writer.flushed_end_timestamp)


def _write_entries(
    view: StoreSnapshot, writer: IndexWriter, progress: Callable[[int, int], None] | None
) -> tuple[int, int, tuple[Gap, ...]]:
    """Write the entries of all records; return the numbers of records and entries, and damage."""
    config = with_tag_index(view.config, view.directory, view.log)
    records = entry_count = 0
    gaps = []
    start = max(view.min_phy_offset, 0)
    total = max(view.end_offset - start, 0)
    for part in scan_log(view.log, start, view.end_offset):
        if isinstance(part, Gap):
            gaps.append(part)
            continue
        entries = index_entries(MessageColumns(part), with_tags=bool(config.tag_index_enable))
        writer.append(entries)
        writer.flush_full()
        records += len(part)
        entry_count += len(entries.key_hash)
        if progress is not None:
            last = int(part.column("total_size")[-1])
            progress(entries.last_record_offset + last - start, total)
    if progress is not None:
        progress(total, total)
    return records, entry_count, tuple(gaps)


def _unfinished_directory(target_root: Path) -> Path:
    """Create the empty directory to write the files to; raise if there are index files already."""
    target = target_root / INDEX_DIR
    if target.is_dir() and any(target.iterdir()):
        raise StoreFormatError("there are files already; move them away first", str(target))
    unfinished = target_root / _UNFINISHED
    for name in index_file_names(unfinished):  # of a rebuild that was interrupted
        (unfinished / name).unlink()
    unfinished.mkdir(parents=True, exist_ok=True)
    return unfinished


def _put_in_place(unfinished: Path, target_root: Path) -> Path:
    """Rename the finished directory to ``index``, and flush the rename."""
    target = target_root / INDEX_DIR
    with suppress(FileNotFoundError):
        target.rmdir()
    unfinished.rename(target)
    flush_directory(str(target_root))
    return target
