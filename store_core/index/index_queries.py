# SPDX-License-Identifier: Apache-2.0
"""Queries of index files: as RocketMQ answers them, and exact lookups."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import CorruptRecordError, StoreConfigError, StoreReadError
from store_core.files.segment_list import merged_ranges
from store_core.index.index_file import (
    INDEX_SIZE_OPTIONS,
    IndexFile,
    IndexHeader,
    IndexHits,
    key_hash,
    key_hashes,
    read_index_header,
    resolve_sizes,
    tag_hash,
)
from store_core.layout import INDEX_DIR, INDEX_HEADER, TAG_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]
    StoreTimestampAt = Callable[[int], "int | None"]

_OPEN_FILES = 64
_INDEX_NAME = re.compile(r"[0-9]+", re.ASCII)


class IndexFileEntry(NamedTuple):
    """A file that can be used: its path and header."""

    path: str
    header: IndexHeader


class UnusableIndexFile(NamedTuple):
    """A file that cannot be used, and why."""

    path: str
    reason: str


class UnindexedRange(NamedTuple):
    """Records that begin in ``[start, stop)`` of the commit log may be missing in the index."""

    start: int
    stop: int


class IndexCoverage(NamedTuple):
    """Files that can be trusted, oldest first, and the ranges that they do not cover."""

    files: tuple[IndexFileEntry, ...]
    gaps: tuple[UnindexedRange, ...]
    unusable: tuple[UnusableIndexFile, ...]


class IndexLookup(NamedTuple):
    """Candidates for keys: offsets of the commit log, ascending and distinct.

    Together with the records in the gaps they include every record that has one of the keys. Keys
    with equal hashes bring candidates too, so the caller compares keys after decoding.
    """

    commit_log_offsets: npt.NDArray[np.int64]
    coverage: IndexCoverage


class HashLookup(NamedTuple):
    """Candidates for hashes, unordered, with repeats, as parallel columns; and their coverage."""

    key: Int64s
    """Index of the requested hash."""
    commit_log_offset: Int64s
    coverage: IndexCoverage


class IndexQueries(ABC):
    """Queries of index files, however they are opened."""

    def __init__(self, max_msgs_num_batch: int, *, stopped: bool = False) -> None:
        self._max_msgs_num_batch = max_msgs_num_batch
        self._stopped = stopped
        self._whole: set[str] = set()
        self._covered: tuple[tuple[object, ...], IndexCoverage] | None = None
        """The last coverage and what it was asked for: searches by key ask for the same one."""
        self.files: tuple[IndexFileEntry, ...] = ()
        self.unusable: tuple[UnusableIndexFile, ...] = ()

    @abstractmethod
    def _file(self, path: str) -> IndexFile:
        """Return an opened file of `files`."""

    @abstractmethod
    def _require_sizes(self) -> tuple[int, int]:
        """Return slots and entries of the files, or raise StoreConfigError."""

    def query_offset(
        self,
        topic: str,
        key: str,
        max_num: int,
        begin: int,
        end: int,
        index_type: str | None = None,
    ) -> tuple[list[int], int, int]:
        """Answer as ``IndexService.queryOffset`` does (RocketMQ 5.5.1), collisions included.

        Times in ms, inclusive. At most ``max_msgs_num_batch`` offsets are returned. With type ``T``
        the key is the tags of a message.

        Returns
        -------
        commit_log_offsets, index_last_update_timestamp, index_last_update_phy_offset
            Offsets newest first, with repeats; then the newest file's end, 0 without a file.
        (``DefaultMessageStore.queryMessage`` gives these two as 0 if there is no offset.)

        Raises
        ------
        StoreConfigError
            Sizes of the files are not known.
        CorruptRecordError
            A chain is damaged.
        """
        self._require_sizes()
        limit = min(max_num, self._max_msgs_num_batch)
        offsets: list[int] = []
        hash_of_key = tag_hash(topic, key) if index_type == TAG_TYPE else key_hash(topic, key)
        for path, header in reversed(self.files):
            if _is_time_matched(header, begin, end):
                left = limit - len(offsets)
                offsets += self._file(path).select_phy_offset(hash_of_key, left, begin, end)
            if header.begin_timestamp < begin or len(offsets) >= limit:
                break
        newest = self.files[-1].header if self.files else None
        if newest is None:
            return offsets, 0, 0
        return offsets, newest.end_timestamp, newest.end_phy_offset

    def coverage(
        self,
        min_phy_offset: int,
        end_offset: int,
        store_timestamp_at: StoreTimestampAt,
        *,
        distrusted: Sequence[UnusableIndexFile] = (),
    ) -> IndexCoverage:
        """Return which records of ``[min_phy_offset, end_offset)`` the files cover.

        A file covers the records between its first and its last. Those two themselves may have
        keys in the neighbour file, so they belong to a gap unless the neighbour begins where this
        file ends. Gaps are ascending and disjoint; files may overlap.

        Parameters
        ----------
        store_timestamp_at
            Returns the store time (ms) of the valid record that begins at an offset of the log,
            None if there is none. A file whose last record is not in the log remains from before
            recovery cut the log: records written there since are not indexed
            (``IndexService.buildIndex`` skips offsets below a file's end), so it is not trusted.
        """
        bad = list(distrusted)
        paths = {file.path for file in bad}
        files = []
        for file in sorted(self.files, key=lambda f: (f.header.begin_phy_offset, f.path)):
            header = file.header
            if header.entry_count < 1 or header.end_phy_offset < min_phy_offset:
                continue
            if file.path in paths:
                continue
            if store_timestamp_at(header.end_phy_offset) != header.end_timestamp:
                bad.append(UnusableIndexFile(file.path, "its last record is not in the log"))
            elif header.end_phy_offset < end_offset:
                files.append(file)
        gaps = self._gaps([file.header for file in files], min_phy_offset, end_offset)
        return IndexCoverage(tuple(files), gaps, (*self.unusable, *bad))

    def _gaps(
        self, headers: Sequence[IndexHeader], start: int, end: int
    ) -> tuple[UnindexedRange, ...]:
        return merged_gaps(gaps_between(headers, start, end))

    def lookup(
        self,
        topic: str,
        keys: Sequence[str],
        min_phy_offset: int,
        end_offset: int,
        store_timestamp_at: StoreTimestampAt,
    ) -> IndexLookup:
        """Find all records that may have one of the keys; parameters as in `coverage`.

        A file with a damaged chain is left out, and its range becomes a gap.
        """
        found = self.lookup_hashes(
            key_hashes(topic, keys), min_phy_offset, end_offset, store_timestamp_at
        )
        return IndexLookup(np.unique(found.commit_log_offset), found.coverage)

    def lookup_hashes(
        self,
        hashes: Int32s,
        min_phy_offset: int,
        end_offset: int,
        store_timestamp_at: StoreTimestampAt,
    ) -> HashLookup:
        """Do as `lookup` for hashes (``index_file.key_hash``), with the hash of each candidate."""
        bounds = (min_phy_offset, end_offset, store_timestamp_at)
        if self._covered is None or self._covered[0] != bounds:
            self._covered = bounds, self.coverage(*bounds)
        coverage = self._covered[1]
        found, distrusted = [], []
        for hits in self._hits([path for path, _ in coverage.files], hashes):
            if isinstance(hits, UnusableIndexFile):
                distrusted.append(hits)
            else:
                found.append(hits)
        if distrusted:
            coverage = self.coverage(*bounds, distrusted=distrusted)
        keys = _joined([hits.key for hits in found])
        places = _joined([hits.commit_log_offset for hits in found])
        inside = (places >= min_phy_offset) & (places < end_offset)
        return HashLookup(keys[inside], places[inside], coverage)

    def _hits(
        self, paths: Sequence[str], hashes: Int32s
    ) -> Iterator[IndexHits | UnusableIndexFile]:
        """Yield the hits of each file; remote files are read in parallel."""
        remote = []
        for path in paths:
            try:
                file = self._file(path)
            except (CorruptRecordError, StoreReadError) as err:
                yield UnusableIndexFile(path, str(err))
                continue
            if file.source.is_local:
                yield self._hits_of(file, hashes)
            else:
                remote.append(file)
        if remote:
            from store_core.files.remote_requests import at_once  # noqa: PLC0415 (starts threads)

            yield from at_once(lambda file: self._hits_of(file, hashes), remote)

    def _hits_of(self, file: IndexFile, hashes: Int32s) -> IndexHits | UnusableIndexFile:
        try:
            if not self._slots_were_written(file, hashes):
                self._check_slots(file)
            return file.hits(hashes)
        except (CorruptRecordError, StoreReadError) as err:
            return UnusableIndexFile(file.source.path, str(err))

    def _slots_were_written(self, file: IndexFile, hashes: Int32s) -> bool:
        """Return whether a remote file has all its slots without fetching all of them.

        A clean stop wrote all of it; later losses are of whole pages.
        """
        return self._stopped and not file.source.is_local and file.has_pages_of(hashes)

    def _check_slots(self, file: IndexFile) -> None:
        """Raise if slots were lost; reads each file once (20 MB at the default size)."""
        path = file.source.path
        if path not in self._whole:
            if not file.has_all_slots():
                text = "fewer hash slots are in use than its header says"
                raise CorruptRecordError(text, path, INDEX_HEADER.size)
            self._whole.add(path)

    def last_phy_offset(self) -> int | None:
        """Return the start of the last record in any usable file; None without entries."""
        ends = [f.header.end_phy_offset for f in self.files if f.header.entry_count > 0]
        return max(ends, default=None)


def _joined(columns: Sequence[Int64s]) -> Int64s:
    """Return some columns of numbers one after the other."""
    return columns[0] if len(columns) == 1 else np.concatenate([np.empty(0, np.int64), *columns])


def _is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    # Source: IndexFile.isTimeMatched
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def gaps_between(headers: Sequence[IndexHeader], start: int, end: int) -> list[UnindexedRange]:
    """Return the ranges of ``[start, end)`` that files, sorted by begin, do not cover."""
    gaps = []
    covered = None  # last record of the files so far
    for header in headers:
        begin = header.begin_phy_offset
        if covered is None:
            if begin >= start:
                gaps.append(UnindexedRange(start, min(begin + 1, end)))
        elif begin > covered:
            gaps.append(UnindexedRange(max(start, covered), min(begin + 1, end)))
        covered = header.end_phy_offset if covered is None else max(covered, header.end_phy_offset)
    gaps.append(UnindexedRange(start if covered is None else max(start, covered), end))
    return [gap for gap in gaps if gap.start < gap.stop]


def merged_gaps(gaps: Sequence[UnindexedRange]) -> tuple[UnindexedRange, ...]:
    """Return gaps ascending, merging those that touch each other."""
    return tuple(UnindexedRange(*merged) for merged in merged_ranges(gaps))


class IndexService(IndexQueries):
    """The files below ``index``, read only, as they were when this object was made.

    Attributes
    ----------
    sizes
        Slots and entries of the files: as configured, else RocketMQ's defaults if the length is
        theirs, else proved by a file's content; None if not known.

    Raises
    ------
    StoreConfigError
        The configured sizes contradict what a file's content proves.
    StoreReadError
        The directory cannot be read.
    """

    def __init__(
        self, directory: StoreDirectory, config: MessageStoreConfig, *, stopped: bool = False
    ) -> None:
        self.directory = directory
        super().__init__(config.max_msgs_num_batch, stopped=stopped)
        self._open: OrderedDict[str, IndexFile] = OrderedDict()
        listed = directory.list(directory.resolve(INDEX_DIR))
        entries = [e for e in listed if not e.is_dir and _INDEX_NAME.fullmatch(e.name)]
        directory.fetch_ahead((entry.path, 0, INDEX_HEADER.size) for entry in entries)
        self.sizes = resolve_sizes(directory, entries, config)
        for entry in sorted(entries, key=lambda e: (int(e.name), e.name)):
            self._add(entry.path)

    def _add(self, path: str) -> None:
        try:
            with self.directory.open(path) as source:
                if self.sizes is None:
                    read_index_header(source)
                    reason = (
                        f"the numbers of slots and entries are not known; give {INDEX_SIZE_OPTIONS}"
                    )
                    self.unusable += (UnusableIndexFile(path, reason),)
                else:
                    header = IndexFile(source, *self.sizes).header
                    self.files += (IndexFileEntry(path, header),)
        except (CorruptRecordError, StoreReadError) as err:
            self.unusable += (UnusableIndexFile(path, err.reason),)

    def close(self) -> None:
        """Close the files; they are opened again when needed."""
        while self._open:
            self._open.popitem()[1].source.close()

    def _file(self, path: str) -> IndexFile:
        file = self._open.pop(path, None)
        if file is None:
            source = self.directory.open(path)
            try:
                file = IndexFile(source, *self._require_sizes())
            except BaseException:
                source.close()
                raise
        self._open[path] = file
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].source.close()
        return file

    def _require_sizes(self) -> tuple[int, int]:
        if self.sizes is not None:
            return self.sizes
        if self.unusable:
            raise StoreConfigError(
                f"{self.unusable[-1].path}: the index files do not show how many slots and "
                f"entries they have; give {INDEX_SIZE_OPTIONS}"
            )
        return DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM  # there is no file
