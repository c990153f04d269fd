"""The index of a store that is being written: pinned for one query."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Callable

from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import CorruptRecordError, StoreReadError
from store_core.files.byte_source import read_error
from store_core.files.ref_counted_map import RefCountedMap
from store_core.files.regular_file import open_to_read
from store_core.index.index_file import IndexFile
from store_core.index.index_queries import (
    IndexFileEntry,
    IndexQueries,
    UnindexedRange,
    UnusableIndexFile,
    gaps_between,
    merged_gaps,
)
from store_core.index.index_writer import index_file_names
from store_core.log.live_log import HeldByteSource
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.index.index_file import IndexHeader

_HEADER_READS = 64


class LiveIndex:
    """The files below ``index``, kept open between queries; any thread may ask.

    Parameters
    ----------
    config
        ``max_hash_slot_num``, ``max_index_num`` (RocketMQ's when they are None) and
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
        indexed_offset = self._indexed_offset()  # at first: what it says is in the files by then
        held, unusable = self._hold(index_file_names(self._directory))
        return PinnedIndex(self, held, unusable, indexed_offset)

    def close(self) -> None:
        """Close the files; queries that hold them go on."""
        with self._lock:
            while self._open:
                self._open.popitem()[1].close()

    def forget(self) -> None:
        """Close the files, as they were deleted: new ones may get the same names."""
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
    """Index files that are held, and their headers at one moment; for one thread.

    The newest file's chains may be followed while the writer adds to it: entries lie after those
    they point at, and are written before the slot that names them. Whether all slots of older
    files are there is looked at once; whoever opens the newest one for writing does that.
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
        """Give all files back."""
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
    """Open a file; its header is read until two readings agree, as it may be written meanwhile."""
    file = IndexFile(source, slots, entries)
    for _ in range(_HEADER_READS):
        again = IndexFile(source, slots, entries)
        if again.header == file.header:
            break
        file = again
    return file
