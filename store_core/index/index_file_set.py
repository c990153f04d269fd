# SPDX-License-Identifier: Apache-2.0
"""The index files of a store that is written: which can be trusted, and how queries hold them.

Source: RocketMQ ``IndexService.load`` (release 5.3.3), which deletes less and rebuilds less.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import CorruptRecordError, StoreConfigError, StoreReadError
from store_core.files.byte_source import open_to_read, read_error
from store_core.files.mapped_file import RefCountedMap
from store_core.index.index_entries import index_entries
from store_core.index.index_file import INDEX_SIZE_OPTIONS, IndexFile, IndexHeader, resolve_sizes
from store_core.index.index_queries import (
    IndexFileEntry,
    IndexQueries,
    UnindexedRange,
    UnusableIndexFile,
    gaps_between,
    merged_gaps,
)
from store_core.index.index_writer import index_file_names
from store_core.layout import INDEX_DIR
from store_core.log.commit_log import scan_frames
from store_core.log.live_log import HeldByteSource
from store_core.log.log_scan import skip_gap
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.commit_log import ReadableLog

_PROBE_BYTES = 1 << 20
"""How far after a file keys are searched for. A lost file began right there."""
_HEADER_READS = 64


class IndexFileSet(NamedTuple):
    """The decision which files of an index to keep.

    Attributes
    ----------
    reason
        Why files are dropped; empty if none is.
    flushed_end_timestamp
        Store time (ms) up to which the kept files are on the disk: the checkpoint's, or less if
        files that it covers are dropped.
    """

    sizes: tuple[int, int]
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    reason: str
    from_offset: int
    is_behind: bool
    flushed_end_timestamp: int


class RecoveredLog(NamedTuple):
    """A log with a known end, and facts about its index.

    Attributes
    ----------
    index_msg_timestamp
        End of the full index file that was flushed last, by the checkpoint; ms.
    """

    log: ReadableLog
    min_offset: int
    end_offset: int
    last_exit_ok: bool
    index_msg_timestamp: int
    proved: Collection[str] = ()


def index_file_set(
    directory: StoreDirectory, config: MessageStoreConfig, recovered: RecoveredLog
) -> IndexFileSet:
    """Decide which files to keep, changing nothing.

    A file can be trusted if it is whole, its last record is in the log, no file is missing before
    it, and, after a crash, if its entries were compared with the log, or it is known to have been
    flushed (`flushed_files`). All files after the first that cannot be trusted are dropped:
    entries must come in the order of the log.

    Raises
    ------
    StoreConfigError
        The sizes of the files are not known, or contradict the configuration.
    """
    names, sizes = names_and_sizes(directory, config, last_exit_ok=recovered.last_exit_ok)
    sizes = sizes or _default_sizes(config)
    flushed = flushed_files(directory, names, sizes, recovered.index_msg_timestamp)
    judge = _Judge(directory, sizes, recovered, flushed)
    kept: list[str] = []
    reason: str | None = None
    for name in names:
        reason = judge.refuse(name)
        if reason is not None:
            break
        kept.append(name)
    start = judge.end if judge.end >= 0 else recovered.min_offset
    end, flushed_ms = recovered.end_offset, recovered.index_msg_timestamp
    is_whole = recovered.last_exit_ok and bool(kept) and reason is None
    with_tags = bool(config.tag_index_enable)
    behind = start < end and not (
        is_whole and not _has_entries(recovered.log, start, end, judge.end, with_tags=with_tags)
    )
    return IndexFileSet(
        sizes=sizes,
        kept=tuple(kept),
        dropped=tuple(names[len(kept) :]),
        reason=reason or "",
        from_offset=start if behind else end,
        is_behind=behind,
        flushed_end_timestamp=min(flushed_ms, judge.end_timestamp) if behind else flushed_ms,
    )


def flushed_files(
    directory: StoreDirectory,
    names: Sequence[str],
    sizes: tuple[int, int],
    index_msg_timestamp: int,
) -> frozenset[str]:
    """Return the names of index files that were flushed before a crash.

    Those are the file that ends at ``index_msg_timestamp``, the first one if there are several, and
    the files before it. RocketMQ counts each that ends no later as flushed: if the clock was set
    back, that includes files that were being written.

    Parameters
    ----------
    index_msg_timestamp
        The checkpoint's, ms; 0 if no file was flushed.
    """
    for number, name in enumerate(names if index_msg_timestamp > 0 else ()):
        try:
            with directory.open(directory.resolve(INDEX_DIR, name)) as source:
                header = IndexFile(source, *sizes).header
        except (CorruptRecordError, StoreReadError):
            break
        if header.end_timestamp == index_msg_timestamp:
            return frozenset(names[: number + 1])
    return frozenset()


def names_and_sizes(
    directory: StoreDirectory, config: MessageStoreConfig, *, last_exit_ok: bool
) -> tuple[list[str], tuple[int, int] | None]:
    """Return the names of a store's index files, oldest first, and `resolve_sizes` of them.

    Raises
    ------
    StoreConfigError
        The sizes contradict the configuration; or they are not known, and the store was stopped
        cleanly: only after a crash may the files be rebuilt.
    """
    path = directory.resolve(INDEX_DIR)
    names = index_file_names(Path(path))
    entries = [entry for entry in directory.list(path) if entry.name in set(names)]
    sizes = resolve_sizes(directory, entries, config)
    if sizes is None and names and last_exit_ok:
        raise StoreConfigError(
            f"{path}: the index files do not show how many slots and entries they have; give "
            f"{INDEX_SIZE_OPTIONS}"
        )
    return names, sizes


class _Judge:
    """Judges one file after the other."""

    def __init__(
        self,
        directory: StoreDirectory,
        sizes: tuple[int, int],
        recovered: RecoveredLog,
        flushed: Collection[str],
    ) -> None:
        self._directory, self._sizes, self._recovered = directory, sizes, recovered
        self._flushed = flushed
        self.end = -1
        """Start of the last record in the files so far; -1 without any."""
        self.end_timestamp = 0

    def refuse(self, name: str) -> str | None:
        """Return why a file cannot be trusted; None if it can."""
        path, recovered = self._directory.resolve(INDEX_DIR, name), self._recovered
        try:
            with self._directory.open(path) as source:
                header = IndexFile(source, *self._sizes).header
        except (CorruptRecordError, StoreReadError) as err:
            return f"{path}: {err.reason}"
        is_trusted = recovered.last_exit_ok or name in recovered.proved
        if not is_trusted and name not in self._flushed:
            return f"{path}: it is not known to have been flushed before the crash"
        if header.entry_count == 0:
            # RocketMQ begins a file with the end of the file before it.
            end = header.end_phy_offset, header.end_timestamp
            if end in {(0, 0), (self.end, self.end_timestamp)}:
                return None
            return f"{path}: it has no entries, but its header names a last one"
        reason = self._misplaced(header) or (self._gap(header) if is_trusted else None)
        if reason is not None:
            return f"{path}: {reason}"
        self.end, self.end_timestamp = header.end_phy_offset, header.end_timestamp
        return None

    def _misplaced(self, header: IndexHeader) -> str | None:
        """Return why a file does not fit the log and the file before it; None if it does."""
        recovered = self._recovered
        if header.begin_phy_offset < self.end:
            return "it begins before the previous file ends"
        if header.end_phy_offset >= recovered.end_offset:
            return "it ends past the end of the log"
        borders = (
            ("first", header.begin_phy_offset, header.begin_timestamp),
            ("last", header.end_phy_offset, header.end_timestamp),
        )
        for which, offset, timestamp in borders:
            found = recovered.log.store_timestamp_at(offset, recovered.end_offset)
            if offset >= recovered.min_offset and found != timestamp:
                return f"its {which} record is not in the log, or has another store time"
        return None

    def _gap(self, header: IndexHeader) -> str | None:
        """Return the proof that a file is missing before this one; None without one."""
        log, start = self._recovered.log, max(self.end, self._recovered.min_offset)
        # Only keys: older brokers made no entries for tags.
        if _has_entries(log, start, header.begin_phy_offset, self.end, with_tags=False):
            return "keys of records before its first record are in no file"
        return None


def _has_entries(log: ReadableLog, start: int, stop: int, border: int, *, with_tags: bool) -> bool:
    """Return whether a record of ``[start, stop)`` has entries; inspects the first MiB only.

    The record at ``border`` is ignored: it is in an index file.
    """
    probed = min(stop, start + _PROBE_BYTES)
    for frames in scan_frames(log, start, probed, on_gap=skip_gap):
        rows = frames.column("commit_log_offset") != border
        columns = MessageColumns(frames.take(np.flatnonzero(rows)))
        if len(index_entries(columns, with_tags=with_tags).key_hash):
            return True
    return False


def _default_sizes(config: MessageStoreConfig) -> tuple[int, int]:
    return (
        config.max_hash_slot_num or DEFAULT_MAX_HASH_SLOT_NUM,
        config.max_index_num or DEFAULT_MAX_INDEX_NUM,
    )


class LiveIndex:
    """The files below ``index``, open between queries; for any thread.

    Parameters
    ----------
    config
        ``max_hash_slot_num``, ``max_index_num`` (RocketMQ's if they are None) and
        ``max_msgs_num_batch``.
    """

    def __init__(
        self, directory: Path, config: MessageStoreConfig, indexed_offset: Callable[[], int]
    ) -> None:
        self._directory = directory
        slots = config.max_hash_slot_num or DEFAULT_MAX_HASH_SLOT_NUM
        self.sizes = (slots, config.max_index_num or DEFAULT_MAX_INDEX_NUM)
        self.max_msgs_num_batch = config.max_msgs_num_batch
        self.whole: set[str] = set()
        self._indexed_offset = indexed_offset
        self._open: dict[str, RefCountedMap] = {}
        self._lock = threading.Lock()

    def pin(self) -> PinnedIndex:
        """Return the index as it is now; a context manager. Pin the log after it."""
        indexed_offset = self._indexed_offset()  # first: the files have all records up to it
        held, unusable = self._hold(index_file_names(self._directory))
        return PinnedIndex(self, held, unusable, indexed_offset)

    def close(self) -> None:
        """Close the files; queries that hold them go on."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def forget(self) -> None:
        """Close the files after they were deleted: new ones may get the same names."""
        self.close()
        self.whole.clear()

    def _hold(self, names: Sequence[str]) -> tuple[list[RefCountedMap], list[UnusableIndexFile]]:
        held: list[RefCountedMap] = []
        unusable = []
        with self._lock:
            for path in self._open.keys() - {str(self._directory / name) for name in names}:
                self._open.pop(path).close()
                self.whole.discard(path)
            for name in names:
                path = str(self._directory / name)
                try:
                    file = self._open.get(path) or _open_map(path)
                except StoreReadError as err:  # deleted meanwhile
                    unusable.append(UnusableIndexFile(path, err.reason))
                    continue
                self._open[path] = file
                if file.hold():
                    held.append(file)
        return held, unusable


class PinnedIndex(IndexQueries, Closing):
    """Index files with a hold on each, and their headers at one moment; for one thread.

    The newest file's chains may be followed while the writer adds to it: entries come after those
    they point at, and are written before the slot that points at them. Older files are checked once
    for lost slots; the newest one, whose slots change, is not.
    """

    def __init__(
        self,
        index: LiveIndex,
        held: list[RefCountedMap],
        unusable: list[UnusableIndexFile],
        indexed_offset: int,
    ) -> None:
        super().__init__(index.max_msgs_num_batch)
        self._whole = index.whole
        self._sizes, self._held = index.sizes, held
        self._indexed_offset = indexed_offset
        self._by_path: dict[str, IndexFile] = {}
        for file in held:
            try:
                opened = _with_stable_header(HeldByteSource(file), *self._sizes)
            except (CorruptRecordError, StoreReadError) as err:
                unusable.append(UnusableIndexFile(file.path, err.reason))
                continue
            self._by_path[file.path] = opened
            self.files += (IndexFileEntry(file.path, opened.header),)
        self.unusable = tuple(unusable)

    def close(self) -> None:
        """Release all files."""
        self._by_path.clear()
        while self._held:
            self._held.pop().release()

    def _file(self, path: str) -> IndexFile:
        return self._by_path[path]

    def _require_sizes(self) -> tuple[int, int]:
        return self._sizes

    def _check_slots(self, file: IndexFile) -> None:
        if file.path != self.files[-1].path:
            super()._check_slots(file)

    def _gaps(
        self, headers: Sequence[IndexHeader], start: int, end: int
    ) -> tuple[UnindexedRange, ...]:
        gaps = gaps_between(headers, start, end)
        behind = UnindexedRange(max(start, min(self._indexed_offset, end)), end)
        if behind.start < behind.stop:
            gaps.append(behind)
        return merged_gaps(gaps)


def _open_map(path: str) -> RefCountedMap:
    try:
        fd = open_to_read(path)
        return RefCountedMap(path, os.fstat(fd).st_size, fd)
    except OSError as err:
        raise read_error(err, path) from err


def _with_stable_header(source: HeldByteSource, slots: int, entries: int) -> IndexFile:
    """Open a file, reading its header until two reads agree, as it may be written meanwhile."""
    file = IndexFile(source, slots, entries)
    for _ in range(_HEADER_READS):
        again = IndexFile(source, slots, entries)
        if again.header == file.header:
            break
        file = again
    return file
