"""What the writers of queues have in common: files, and where the units begin and end now."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from store_core.files.nonzero_bytes import first_nonzero
from store_core.files.segment_list import Segment, SegmentList
from store_core.queue.segmented_queue import SegmentedQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.queue.queue_files import QueueFiles

Queue = TypeVar("Queue", bound=SegmentedQueue)


class QueueWriter(ABC, Generic[Queue]):
    """A queue that grows: one thread appends to it, any may read, and a third expires.

    Parameters
    ----------
    queue
        The files that are there, to be read.
    files
        The same, to be written.
    span
        First queue offset, and the one after the last, of a queue without units.

    Attributes
    ----------
    topic, queue_id
        What it belongs to.
    unit_bytes, file_size
        Bytes of a unit and of a file.
    max_physic_offset
        End of the last record that is in the queue; -1 for none.
    last_found
        Start and size of the record of the last unit that `recover` found, be it after a hole;
        (-1, 0) for none.
    lost_from
        Units of records after this offset of the log were found to be lost, or were cut off;
        None: not that one would know.
    """

    def __init__(self, queue: Queue, files: QueueFiles, span: tuple[int, int]) -> None:
        self.topic, self.queue_id = queue.topic, queue.queue_id
        self.unit_bytes, self.file_size = queue.kind.unit_bytes, files.file_size
        self.max_physic_offset = -1
        self.last_found = (-1, 0)
        self.lost_from: int | None = None
        self._queue, self._files, self._span = queue, files, span
        self._lock = threading.Lock()

    @property
    def min_offset(self) -> int:
        """First queue offset whose record is in the log, as of the last correction."""
        return self._span[0]

    @property
    def max_offset(self) -> int:
        """Queue offset after the last message."""
        return self._span[1]

    @property
    def files_on_disk(self) -> Queue:
        """The units as its files hold them, whatever `recover` took for their end."""
        return self._queue

    @abstractmethod
    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Move the first queue offset to the first record that is in the log."""

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files, oldest first, of which no record is left; return how many.

        Never the last file. The first queue offset is corrected before, so that nobody reads what
        is deleted (``ConsumeQueue.deleteExpiredFile``).
        """
        expired = []
        for segment in self._segments[:-1]:
            if self._last_record(segment) >= min_phy_offset:
                break
            expired.append(segment)
        self.correct_min_offset(min_phy_offset)
        for segment in expired:
            with self._lock:
                self._set_segments(self._segments[1:])
                self._files.delete(segment.from_offset)
        return len(expired)

    @abstractmethod
    def _last_record(self, segment: Segment) -> int:
        """Return where in the log the record of the last unit of a full file begins."""

    @property
    def _segments(self) -> tuple[Segment, ...]:
        return self._queue.segments.segments

    def _set_segments(self, segments: Sequence[Segment]) -> None:
        self._queue = self._queue.with_segments(SegmentList(segments, self.file_size))

    def _add_files(self, known: Sequence[Segment], begin: int, stop: int) -> None:
        """Let readers know of the files that were made after those known, up to a byte position.

        The first begins at ``begin`` when none is known.
        """
        size = self.file_size
        begin = known[-1].from_offset + size if known else begin
        added = [Segment(at, str(self._files.path(at)), size) for at in range(begin, stop, size)]
        if added:
            self._set_segments((*known, *added))

    def _delete_last(self) -> None:
        self._files.delete(self._segments[-1].from_offset)
        self._set_segments(self._segments[:-1])

    def _note_loss(self) -> None:
        """Take note that units after the end are lost."""
        self.lost_from = max(self.max_physic_offset, 0)

    def _look_for_loss(self, end: int, *, trusted: bool) -> None:
        """Take note of whether units were lost after the byte position at which they end now.

        Also after a clean stop: then what lies there was damaged since. So was a last file without
        units, which is only made for one; after a crash it may not have been written yet.
        """
        self.lost_from = None
        if (trusted and self._is_emptied(end)) or self._has_data_after(end):
            self._note_loss()

    def _is_emptied(self, end: int) -> bool:
        """Return whether the last file has no units, and is not kept for its name."""
        files = self._segments
        is_named = len(files) == 1 and files[0].from_offset > 0
        return len(files) > 0 and end <= files[-1].from_offset and not is_named

    def _has_data_after(self, position: int) -> bool:
        """Return whether a byte other than zero lies at or after a byte position of the queue."""
        for segment in self._segments:
            if position < segment.from_offset + segment.size:
                with self._queue.directory.open(segment.path) as source:
                    if first_nonzero(source, max(position - segment.from_offset, 0)) >= 0:
                        return True
        return False
