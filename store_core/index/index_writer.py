"""Writes index files as RocketMQ's dispatch leaves them, byte for byte, whole batches at once.

Source: RocketMQ ``IndexService.buildIndex``, ``getAndCreateLastIndexFile`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.errors import StoreConfigError
from store_core.files.byte_source import LocalByteSource, read_error
from store_core.files.file_writing import flush_directory
from store_core.index.index_file import IndexFile, IndexHeader
from store_core.index.index_file_writer import EMPTY_HEADER, IndexFileWriter
from store_core.layout.message import MAX_PROPERTIES_BYTES
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.index.index_entries import IndexEntries

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9]+", re.ASCII)
_NAME_FORMAT = "%Y%m%d%H%M%S%f"  # read with three digits of a second, as RocketMQ writes them
_MAX_KEYS = MAX_PROPERTIES_BYTES // 2  # of one record
_INT32_MAX = int(np.iinfo(np.int32).max)
_ENTRIES_AT_ONCE = 1 << 17  # their columns stay in a cache


def index_file_names(directory: Path) -> list[str]:
    """Return the names of the index files of a directory, oldest first; [] when it is missing.

    Raises
    ------
    StoreReadError
        It may be there, but cannot be read: nobody is to take that for a store without an index.
    """
    try:
        with os.scandir(directory) as scan:
            names = [e.name for e in scan if _NAME.fullmatch(e.name) and _is_file(e)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as err:
        raise read_error(err, str(directory)) from err
    return sorted(names, key=lambda name: (int(name), name))


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a file, or a link to one; a link that leads nowhere is none."""
    return Path(entry.path).is_file() if entry.is_symlink() else entry.is_file()


def index_file_name(now_ms: int, last_name: str | None) -> str:
    """Return a name for a new file: local time as ``yyyyMMddHHmmssSSS``, later than the last one.

    RocketMQ opens the same file twice when two are made in one millisecond, and sorts a new file
    in front of the full ones when the clock was set back; here such a name moves on instead.
    """
    local = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms // 1000))
    name = f"{local}{now_ms % 1000:03d}"
    if last_name is None or int(name) > int(last_name):
        return name
    try:
        later = datetime.strptime(last_name, _NAME_FORMAT) + timedelta(milliseconds=1)
    except ValueError:  # digits, but no time
        return str(int(last_name) + 1).zfill(len(last_name))
    return later.strftime(_NAME_FORMAT)[:-3]


class IndexWriter(Closing):
    """The index of one store while it is written; begins a new file when one is full.

    One thread appends and publishes; `flush_full` may be called by another. The index can always
    be rebuilt from the log (`rebuild_index`).

    Parameters
    ----------
    clock
        Returns the time in ms, which names new files.

    Raises
    ------
    StoreConfigError
        The numbers are impossible.
    CorruptRecordError
        The newest file does not fit these numbers; whoever recovers the store removes it.
    """

    def __init__(
        self,
        directory: Path,
        max_hash_slot_num: int,
        max_index_num: int,
        clock: Callable[[], int],
    ) -> None:
        if not (0 < max_hash_slot_num <= _INT32_MAX and 1 < max_index_num <= _INT32_MAX):
            raise StoreConfigError(
                f"maxHashSlotNum={max_hash_slot_num} and maxIndexNum={max_index_num}: "
                "an index file needs at least 1 slot and room for 2 entries"
            )
        self._directory = directory
        self._sizes = (max_hash_slot_num, max_index_num)
        self._clock = clock
        self._full: deque[IndexFileWriter] = deque()
        self._file: IndexFileWriter | None = None
        self._end_hashes = np.empty(0, np.int32)
        self._new_names = False
        self.flushed_end_timestamp = 0
        """End time of the newest file that is full and on disk (``indexMsgTimestamp``)."""
        names = index_file_names(directory)
        if names:
            self._file = IndexFileWriter(directory / names[-1], *self._sizes, EMPTY_HEADER)
            paths = [str(directory / name) for name in reversed(names)]
            self._end_hashes = _end_hashes(paths, self._sizes, self.end_phy_offset)

    @property
    def end_phy_offset(self) -> int:
        """Start of the last record that has entries; 0 without any."""
        return self._file.header.end_phy_offset if self._file else 0

    def append(self, entries: IndexEntries) -> None:
        """Add the entries of records; what the index already has is left out.

        As in RocketMQ, records before the last indexed one are skipped. Of that one itself
        RocketMQ would write all entries again; here only those that are missing are added. When a
        write fails (OSError), the same entries can be given again.
        """
        if entries.last_record_offset < 0:
            return
        start = self._held(entries)
        while start < len(entries.key_hash):
            file = self._with_room()
            part = slice(start, start + min(file.free, _ENTRIES_AT_ONCE))
            hashes, offsets = entries.key_hash[part], entries.commit_log_offset[part]
            end_hashes = self._end_hashes_with(hashes, offsets)
            file.append(hashes, offsets, entries.store_timestamp[part])
            self._end_hashes = end_hashes
            start += len(hashes)
        if self._file is None or self.end_phy_offset < entries.last_record_offset:
            self._with_room()  # RocketMQ makes the next file for any record, with keys or without

    def _held(self, entries: IndexEntries) -> int:
        """Return how many of the first entries are in the index."""
        end, offsets, held = self.end_phy_offset, entries.commit_log_offset, self._end_hashes
        below = int(np.searchsorted(offsets, end))
        if below == len(offsets) or offsets[below] != end:
            return below
        given = entries.key_hash[below : below + len(held)]
        # Other hashes: another record, written there since the log was cut.
        return below + len(held) if np.array_equal(held, given) else below

    def _end_hashes_with(self, key_hash: Int32s, commit_log_offset: Int64s) -> Int32s:
        first = int(np.searchsorted(commit_log_offset, commit_log_offset[-1]))
        continued = first == 0 and commit_log_offset[0] == self.end_phy_offset
        before = self._end_hashes if continued else self._end_hashes[:0]
        return np.concatenate([before, key_hash[first:]])

    def _with_room(self) -> IndexFileWriter:
        """Return the newest file, or the next one if it is full."""
        last = self._file
        if last is not None and last.free > 0:
            return last
        header, name = EMPTY_HEADER, None
        if last is not None:
            last.publish()
            time_ms, offset = max(0, last.header.end_timestamp), last.header.end_phy_offset
            header, name = (
                IndexHeader(
                    begin_timestamp=time_ms,
                    end_timestamp=time_ms,
                    begin_phy_offset=offset,
                    end_phy_offset=offset,
                    hash_slot_count=0,
                    index_count=1,
                ),
                last.path.name,
            )
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / index_file_name(self._clock(), name)
        self._file = IndexFileWriter(path, *self._sizes, header)
        self._new_names = True
        logger.info("index file %s begins after offset %d", path, header.end_phy_offset)
        if last is not None:
            self._full.append(last)
        return self._file

    def publish(self) -> None:
        """Let readers find what was appended."""
        if self._file is not None:
            self._file.publish()

    def flush_full(self) -> None:
        """Force the files that became full to disk; then ``flushed_end_timestamp`` names the last.

        Cheap where no file became full.
        """
        while self._full:
            file = self._full[0]
            file.sync()
            self._sync_names()
            self.flushed_end_timestamp = file.header.end_timestamp
            file.close()
            self._full.popleft()

    def flush(self) -> None:
        """Publish everything and force it to disk."""
        self.publish()
        self.flush_full()
        if self._file is not None:
            self._file.sync()
            self._sync_names()

    def close(self) -> None:
        """Flush and close the files."""
        try:
            self.flush()
        finally:
            for file in (*self._full, *([self._file] if self._file else ())):
                file.close()
            self._full.clear()
            self._file = None

    def _sync_names(self) -> None:
        if self._new_names:
            self._new_names = False  # at first: another thread may make a file meanwhile
            try:
                flush_directory(str(self._directory))
            except OSError:
                self._new_names = True
                raise


def _end_hashes(paths: Sequence[str], sizes: tuple[int, int], end_phy_offset: int) -> Int32s:
    """Return the hashes of the last record's entries, newest file first; in the record's order."""
    held: list[Int32s] = [np.empty(0, np.int32)]
    for path in paths:
        with LocalByteSource(path) as source:
            file = IndexFile(source, *sizes)
            rows = file.entries(file.header.index_count - _MAX_KEYS)
        other = np.flatnonzero(rows["commit_log_offset"] != end_phy_offset)
        held.insert(0, rows["key_hash"][int(other[-1]) + 1 if len(other) else 0 :])
        if len(other):
            break
    return np.concatenate(held)
