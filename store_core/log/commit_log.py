"""The commit log of a store: read by physical offsets, or opened to be written."""

from __future__ import annotations

from collections import OrderedDict
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import StoreConfigError
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.files.segment_list import Segment, SegmentList, list_segments
from store_core.files.store_directory import StoreDirectory
from store_core.layout.dledger import DLEDGER_ENTRY
from store_core.layout.store_paths import COMMIT_LOG_DIR
from store_core.log.readable_log import ReadableLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.byte_source import ByteSource

DEFAULT_SEGMENT_BYTES = 1 << 30
_OPEN_SEGMENTS = 16
_RECORD_GUESS_BYTES = 1 << 12
MULTI_PATH_SPLITTER = ","
SEGMENT_SIZE_OPTION = "mappedFileSizeCommitLog"


def commit_log_directories(directory: StoreDirectory, config: MessageStoreConfig) -> list[str]:
    """Return the commit log directories: ``storePathCommitLog`` or ``commitlog`` below the root.

    Several are separated by commas; relative ones lie below the root. Source: RocketMQ
    ``MultiPathMappedFileQueue`` (5.3.3).
    """
    listed = [
        config.store_path_commit_log or COMMIT_LOG_DIR,
        config.read_only_commit_log_store_paths,
    ]
    names = [name.strip() for paths in listed for name in (paths or "").split(MULTI_PATH_SPLITTER)]
    return list(dict.fromkeys(directory.resolve(name) for name in names if name))


class CommitLog(ReadableLog):
    """Segments of fixed size that together are one endless file; never written here."""

    def __init__(
        self,
        directory: StoreDirectory,
        config: MessageStoreConfig,
        dledger: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.uri = directory.uri
        paths = [*commit_log_directories(directory, config), *dledger]

        def forget() -> None:
            for path in paths:
                directory.forget(path)

        found = list_segments(
            lambda: [entry for path in paths for entry in directory.list(path)],
            file_size=config.mapped_file_size_commit_log,
            option=SEGMENT_SIZE_OPTION,
            forget=forget,
        )
        self.segments: SegmentList = _with_headers(found, dledger) if dledger else found
        of_dledger = (s.from_offset for s in self.segments if s.header_bytes)
        self._dledger_from: int | None = next(of_dledger, None)
        self._open: OrderedDict[str, ByteSource] = OrderedDict()

    @property
    def min_offset(self) -> int:
        """First byte of the first segment; -1 when there is none (as RocketMQ says)."""
        return self.segments.min_offset if len(self.segments) else -1

    def header_bytes(
        self, commit_log_offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64] | int:
        """Return the bytes before each record that begins at an offset or later in its segment."""
        begin = self._dledger_from
        if begin is None:
            return 0
        return np.where(commit_log_offsets >= begin, DLEDGER_ENTRY.size, 0)

    def source(self, segment: Segment) -> ByteSource:
        """Return the opened segment; the log closes it."""
        source = self._open.pop(segment.path, None) or self.directory.open(segment.path)
        self._open[segment.path] = source
        while len(self._open) > _OPEN_SEGMENTS:
            self._open.popitem(last=False)[1].close()
        return source

    def fetch_ahead(self, commit_log_offsets: Iterable[int]) -> None:
        """Ask at once for records of a remote log."""
        if self.directory.is_local:
            return
        ranges = []
        for offset in commit_log_offsets:
            segment = self.segments.find(offset)
            if segment is not None and offset - segment.from_offset < segment.size:
                ranges.append((segment.path, offset - segment.from_offset, _RECORD_GUESS_BYTES))
        self.directory.fetch_ahead(ranges)

    def twin(self) -> CommitLog:
        """Return the same log for another thread."""
        twin = copy(self)
        twin._open = OrderedDict()
        return twin

    def close(self) -> None:
        """Close all segments."""
        while self._open:
            self._open.popitem()[1].close()


def _with_headers(found: SegmentList, dledger: Sequence[str]) -> SegmentList:
    """Return segments that say of those of DLedger that a header stands before each record."""
    segments = [
        segment._replace(header_bytes=DLEDGER_ENTRY.size)
        if segment.path.rpartition("/")[0] in dledger
        else segment
        for segment in found
    ]
    return SegmentList(segments, found.file_size)


def log_directories(
    directory: StoreDirectory, config: MessageStoreConfig
) -> tuple[list[str], list[str]]:
    """Return the directories of the log that get new files, and those that do not."""
    only, read_only = config.read_only_commit_log_store_paths, []
    if only:
        alone = replace(config, store_path_commit_log=only, read_only_commit_log_store_paths=None)
        read_only = commit_log_directories(directory, alone)
    found = commit_log_directories(directory, config)
    writable = [path for path in found if path not in read_only]
    if not writable:
        raise StoreConfigError(
            "all directories of storePathCommitLog are in readOnlyCommitLogStorePaths: new "
            "segments have no place; add a directory to storePathCommitLog"
        )
    return writable, read_only


def open_segments(root: str, config: MessageStoreConfig, log: CommitLog) -> MappedFileQueue:
    """Return the writable segments of a store, not loaded.

    Their size is the configured one, else that of the files, else RocketMQ's default.
    """
    directory = StoreDirectory(root)
    writable, read_only = log_directories(directory, config)
    size = config.mapped_file_size_commit_log or log.segments.file_size or DEFAULT_SEGMENT_BYTES
    return MappedFileQueue(
        writable,
        size,
        option=SEGMENT_SIZE_OPTION,
        read_only_directories=read_only,
    )
