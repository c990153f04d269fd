"""The commit log of a store, read only: its segments, and records by their physical offsets."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.codec.record_walk import find_record, is_record
from store_core.files.segment_list import Segment, SegmentList, load_segments

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.config import MessageStoreConfig
    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import StoreDirectory

_OPEN_SEGMENTS = 16
MULTI_PATH_SPLITTER = ","
SEGMENT_SIZE_OPTION = "mappedFileSizeCommitLog"


def commit_log_directories(directory: StoreDirectory, config: MessageStoreConfig) -> list[str]:
    """Return the commit log directories: ``storePathCommitLog`` or ``commitlog`` below the root.

    Several are separated by commas; relative ones lie below the root. Source: RocketMQ
    ``MultiPathMappedFileQueue`` (5.3.3).
    """
    listed = [config.store_path_commit_log or "commitlog", config.read_only_commit_log_store_paths]
    names = [name.strip() for paths in listed for name in (paths or "").split(MULTI_PATH_SPLITTER)]
    return list(dict.fromkeys(directory.resolve(name) for name in names if name))


class CommitLog:
    """Segments of fixed size that together are one endless file; never written here.

    Parameters
    ----------
    directory
        The store root.
    config
        ``store_path_commit_log`` and ``mapped_file_size_commit_log`` are looked at.

    Not safe for several threads at once: it keeps the segments that were opened last.
    """

    def __init__(self, directory: StoreDirectory, config: MessageStoreConfig) -> None:
        self.directory = directory
        entries = [
            entry
            for path in commit_log_directories(directory, config)
            for entry in directory.list(path)
        ]
        self.segments: SegmentList = load_segments(
            entries, file_size=config.mapped_file_size_commit_log, option=SEGMENT_SIZE_OPTION
        )
        self._open: OrderedDict[str, ByteSource] = OrderedDict()

    @property
    def min_offset(self) -> int:
        """First byte of the first segment; -1 when there is none (as RocketMQ says)."""
        return self.segments.min_offset if len(self.segments) else -1

    def source(self, segment: Segment) -> ByteSource:
        """Return the opened segment; the log closes it."""
        source = self._open.pop(segment.path, None) or self.directory.open(segment.path)
        self._open[segment.path] = source
        while len(self._open) > _OPEN_SEGMENTS:
            self._open.popitem(last=False)[1].close()
        return source

    def close(self) -> None:
        """Close all segments."""
        while self._open:
            self._open.popitem()[1].close()

    def bytes_of(self, segment: Segment, end_offset: int) -> npt.NDArray[np.uint8]:
        """Return a segment's bytes up to ``end_offset`` (of the log), not copied if it is local."""
        length = min(segment.size, self.segments.file_size, end_offset - segment.from_offset)
        return self.source(segment).view(0, max(length, 0))

    def is_record(self, commit_log_offset: int, end_offset: int) -> bool:
        """Tell whether a whole valid record starts there and ends before ``end_offset``."""
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return False
        data = self.bytes_of(segment, end_offset)
        return is_record(data, segment.from_offset, commit_log_offset - segment.from_offset)

    def frames_at(
        self, segment: Segment, commit_log_offsets: npt.NDArray[np.int64], end_offset: int
    ) -> RecordFrames:
        """Return frames at ascending offsets of one segment; rows that are no records are not ok.

        The offsets may be any that lie in the segment.
        """
        data = self.bytes_of(segment, end_offset)
        return RecordFrames(data, segment.from_offset, commit_log_offsets - segment.from_offset)

    def first_store_timestamp(self, segment: Segment, end_offset: int) -> int | None:
        """Return the store time of a segment's first record; None when none starts at its head."""
        data = self.bytes_of(segment, end_offset)
        if not is_record(data, segment.from_offset, 0):
            return None
        return store_timestamp_at(data, segment.from_offset, 0)

    def next_record(self, commit_log_offset: int, end_offset: int) -> int:
        """Return the first record at or after an offset, within its segment; -1 if none."""
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return -1
        data = self.bytes_of(segment, end_offset)
        base = segment.from_offset
        found = find_record(data, base, commit_log_offset - base)
        return found + base if found >= 0 else -1


def store_timestamp_at(data: npt.NDArray[np.uint8], base_offset: int, at: int) -> int:
    """Return the store time of the record at position ``at``; the caller knows that it is one."""
    frames = RecordFrames(data, base_offset, np.array([at], np.int64))
    return int(frames.column("store_timestamp")[0])
