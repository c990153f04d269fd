# SPDX-License-Identifier: Apache-2.0
"""Read segments that are being written, and may expire: pinned for one query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numpy.lib.stride_tricks import sliding_window_view

from store_core.errors import StoreReadError
from store_core.files.byte_source import ByteSource
from store_core.files.segment_list import Segment
from store_core.log.commit_log import ReadableLog
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from store_core.files.mapped_file import MappedFile, RefCountedMap
    from store_core.files.mapped_file_queue import MappedFileQueue


class HeldByteSource(ByteSource):
    """The bytes of a file on which the caller has a hold; views are of its map."""

    is_local = True

    def __init__(self, held: RefCountedMap) -> None:
        self.path, self.size = held.path, held.file_size
        self._bytes = held.mapped()

    def read_at(self, start: int, length: int) -> bytes:
        """Return bytes of the file; see ``ByteSource``."""
        return self.view(start, length).tobytes()

    def view(self, start: int, length: int) -> npt.NDArray[np.uint8]:
        """Return a view of the map; copy what must outlive the hold."""
        start, stop = self._clip(start, length)
        return self._bytes[start:stop]

    def _gather(self, starts: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
        return sliding_window_view(self._bytes, width)[starts]

    def close(self) -> None:
        """Do nothing: the owner of the hold releases the file."""


class HeldSegments:
    """The segments of a queue; a hold on each begins when it is first needed."""

    def __init__(self, queue: MappedFileQueue, files: tuple[MappedFile, ...]) -> None:
        self.file_size = queue.file_size
        self._queue, self._files = queue, files
        self._held: dict[int, tuple[Segment, MappedFile, HeldByteSource]] = {}

    def find(self, offset: int) -> Segment | None:
        """Return the segment whose range contains ``offset``; None if it is gone."""
        held = self._held.get(offset // self.file_size)
        if held is None:
            file = self._queue.find(offset)
            if file is None or not self._hold(file):
                return None
            held = self._held[offset // self.file_size]
        return held[0]

    def hold_all(self) -> int:
        """Hold every segment that has not expired; return the offset of the first; -1 if none."""
        first = -1
        for file in reversed(self._files):  # the oldest expire first
            if not self._hold(file):
                break
            first = file.file_from_offset
        return first

    def source(self, segment: Segment) -> HeldByteSource:
        """Return the bytes of a segment that `find` returned."""
        return self._held[segment.from_offset // self.file_size][2]

    def release(self) -> None:
        """Release all segments."""
        while self._held:
            self._held.popitem()[1][1].release()

    def __iter__(self) -> Iterator[Segment]:
        """Iterate over the segments that have not expired, oldest first, with a hold on each."""
        self.hold_all()
        return iter(sorted(segment for segment, _, _ in self._held.values()))

    def _hold(self, file: MappedFile) -> bool:
        number = file.file_from_offset // self.file_size
        if number in self._held:
            return True
        if not file.hold():
            return False
        try:
            source = HeldByteSource(file)
        except StoreReadError:
            file.release()
            raise
        segment = Segment(file.file_from_offset, file.path, file.file_size)
        self._held[number] = (segment, file, source)
        return True


class PinnedLog(ReadableLog, Closing):
    """A log as it is now, for one query in one thread; a context manager.

    Appended records become readable whole, so its end is between two records. A segment stays
    mapped from its first use to the end of the query; one that expired before that is missing.
    """

    def __init__(self, queue: MappedFileQueue, uri: str, *, whole: bool = False) -> None:
        self.uri = uri
        files = queue.mapped_files
        self.segments: HeldSegments = HeldSegments(queue, files)
        self._min_offset = files[0].file_from_offset if files else -1
        self.end_offset = min(queue.max_offset, files[-1].end_offset) if files else 0
        if whole:
            self._min_offset = self._hold_all()

    def _hold_all(self) -> int:
        try:
            return self.segments.hold_all()
        except StoreReadError:
            self.close()
            raise

    @property
    def min_offset(self) -> int:
        """Offset of the first segment when the query began; -1 without any."""
        return self._min_offset

    def source(self, segment: Segment) -> HeldByteSource:
        """Return the bytes of a segment that ``segments.find`` returned."""
        return self.segments.source(segment)

    def close(self) -> None:
        """Release all segments."""
        self.segments.release()
