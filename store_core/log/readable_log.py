"""Records of a commit log by their physical offsets, whoever holds its segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from store_core.log.segment_records import SegmentRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.files.byte_source import ByteSource
    from store_core.files.segment_list import Segment


class LogSegments(Protocol):
    """What reading needs of the list of segments (see ``SegmentList``)."""

    file_size: int

    def find(self, offset: int) -> Segment | None:
        """Return the segment whose nominal range holds ``offset``."""

    def __iter__(self) -> Iterator[Segment]:
        """Iterate over all segments, oldest first."""


class ReadableLog(ABC):
    """Segments of fixed size that together are one endless file; not safe for several threads."""

    segments: LogSegments
    uri: str

    @property
    @abstractmethod
    def min_offset(self) -> int:
        """First byte of the first segment; -1 when there is none (as RocketMQ says)."""

    @abstractmethod
    def source(self, segment: Segment) -> ByteSource:
        """Return the opened segment; the log closes it."""

    @abstractmethod
    def close(self) -> None:
        """Give all segments back."""

    def fetch_ahead(self, commit_log_offsets: Iterable[int]) -> None:  # noqa: B027 (a hint)
        """Prepare for reading the records that start there, if that takes requests."""

    def records(self, segment: Segment, end_offset: int) -> SegmentRecords:
        """Return access to the records of a segment that end before ``end_offset``."""
        source, size = self.source(segment), self.segments.file_size
        return SegmentRecords(source, segment.from_offset, size, end_offset, segment.header_bytes)

    def is_record(self, commit_log_offset: int, end_offset: int) -> bool:
        """Return whether a whole valid record starts there and ends before ``end_offset``."""
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
        return self.store_timestamp_at(segment.from_offset + segment.header_bytes, end_offset)

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
