"""The commit log of a store, read only: its segments, and records by their physical offsets."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from store_core.files.segment_list import Segment, SegmentList, load_segments
from store_core.segment_records import SegmentRecords

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
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

    def records(self, segment: Segment, end_offset: int) -> SegmentRecords:
        """Return access to the records of a segment that end before ``end_offset``."""
        source = self.source(segment)
        return SegmentRecords(source, segment.from_offset, self.segments.file_size, end_offset)

    def is_record(self, commit_log_offset: int, end_offset: int) -> bool:
        """Tell whether a whole valid record starts there and ends before ``end_offset``."""
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return False
        records = self.records(segment, end_offset)
        return records.is_record(commit_log_offset - segment.from_offset)

    def store_timestamp_at(self, commit_log_offset: int, end_offset: int) -> int | None:
        """Return the store time (ms) of the record that starts there; None when none does."""
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return None
        records = self.records(segment, end_offset)
        position = commit_log_offset - segment.from_offset
        return records.store_timestamp(position) if records.is_record(position) else None

    def frames_at(
        self, segment: Segment, commit_log_offsets: npt.NDArray[np.int64], end_offset: int
    ) -> RecordFrames:
        """Return frames at ascending offsets of one segment; rows that are no records are not ok.

        The offsets may be any that lie in the segment. Of a remote one only the records and what
        lies between close ones are read.
        """
        records = self.records(segment, end_offset)
        return records.frames_at(commit_log_offsets - segment.from_offset)

    def first_store_timestamp(self, segment: Segment, end_offset: int) -> int | None:
        """Return the store time of a segment's first record; None when none starts at its head."""
        return self.store_timestamp_at(segment.from_offset, end_offset)

    def next_record(
        self, commit_log_offset: int, end_offset: int, stop_offset: int | None = None
    ) -> int:
        """Return the first record that starts in ``[commit_log_offset, stop_offset)``; -1 if none.

        It is looked for within one segment.
        """
        segment = self.segments.find(commit_log_offset)
        if segment is None:
            return -1
        base = segment.from_offset
        stop = None if stop_offset is None else stop_offset - base
        found = self.records(segment, end_offset).find(commit_log_offset - base, stop)
        return found + base if found >= 0 else -1
