# SPDX-License-Identifier: Apache-2.0
"""Read consume queues: the units of one topic and queue id."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from copy import copy
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from store_core.errors import CorruptRecordError, FileVanishedError
from store_core.layout import CQ_UNIT, PRE_BLANK_SIZE
from store_core.queue.queue_directories import CONSUME_QUEUE
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource
    from store_core.files.segment_list import SegmentList
    from store_core.files.store_directory import StoreDirectory

    Units = npt.NDArray[np.void]
    UnitTest = Callable[[Any, Any], Any]

NATIVE_CQ_UNIT = CQ_UNIT.dtype.newbyteorder("=")
"""Fields of the units that readers get: those of ``CQ_UNIT`` in native byte order."""
FILES_RECOVERED = 3
"""Recovery of a queue checks this many files at its end."""
_BLOCK_UNITS = 1024  # a bisection's last range is one read: 20 KB cost no more than a probe


class ConsumeQueue:
    """Units of one queue. It grows at the end; files are deleted at the front; recovery cuts it.

    It can be rebuilt from the commit log. Files are open only during a call, so there may be any
    number of these objects, and calls from several threads do not interfere. For several calls in a
    row, use `held_open`, in one thread.

    Attributes
    ----------
    units_per_file
        Units of a whole file; 0 if there is no file to show it.
    """

    _held: _UnitFiles | None = None

    def __init__(
        self, directory: StoreDirectory, topic: str, queue_id: int, segments: SegmentList
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.queue_id = queue_id
        self.segments = segments
        self.units_per_file = segments.file_size // CQ_UNIT.size

    @classmethod
    def open(
        cls, directory: StoreDirectory, topic: str, queue_id: int, path: str, file_size: int | None
    ) -> ConsumeQueue:
        """List the files of a queue's directory; see ``QueueKind.segments``."""
        return cls(directory, topic, queue_id, CONSUME_QUEUE.segments(directory, path, file_size))

    @contextmanager
    def held_open(self) -> Iterator[ConsumeQueue]:
        """Yield a copy of this queue whose file stays open from one call to the next."""
        twin = copy(self)
        with _UnitFiles(self) as twin._held:
            yield twin

    def read_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)`` as a native array, clipped to what the files contain.

        Row 0 is queue offset ``max(start, start of the first file)``. Units that were never
        written are zeros; the caller stays below `end_of_units`.

        Raises
        ------
        CorruptRecordError
            A file between others is missing or short.
        StoreReadError
            A file cannot be read.
        """
        size = CQ_UNIT.size
        start = max(start_queue_offset, self.segments.min_offset // size)
        stop = min(stop_queue_offset, self.segments.max_offset // size)
        units = np.empty(max(0, stop - start), NATIVE_CQ_UNIT)
        with self._files() as files:
            at = start
            while at < stop:
                part = files.units(at, stop)
                units[at - start : at - start + len(part)] = part
                at += len(part)
        return units

    def place_of(self, queue_offset: int) -> tuple[int, int]:
        """Return the log offset and size of one unit.

        Raises
        ------
        CorruptRecordError
            There is no such unit: a file is missing or short.
        StoreReadError
            As `read_units`.
        """
        with self._files() as files:
            return files.place(queue_offset)

    def exact_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)``, which the caller knows to exist, without clipping.

        Raises
        ------
        FileVanishedError
            The file of the first unit has been deleted since.
        CorruptRecordError, StoreReadError
            As `read_units`.
        """
        units = self.read_units(start_queue_offset, stop_queue_offset)
        if len(units) < stop_queue_offset - start_queue_offset:
            text = f"the file of queue offset {start_queue_offset} was deleted meanwhile"
            raise FileVanishedError(text, f"{self.topic}/{self.queue_id}")
        return units

    def end_of_units(self) -> int:
        """Return the queue offset after the last valid unit, as ``ConsumeQueue.recover`` does.

        Reads the last three files: the end is at the first unit without offset >= 0 and size > 0.
        Units are written in order, so a bisection finds that place.
        """
        with self._files() as files:
            for segment in self.segments.segments[-FILES_RECOVERED:]:
                begin = segment.from_offset // CQ_UNIT.size
                end = begin + min(segment.size, self.segments.file_size) // CQ_UNIT.size
                if end > begin and _is_valid(*files.place(end - 1)):
                    continue
                hole = files.first_hole(begin, end)
                if begin < hole < end and _is_no_valid(*files.place(hole)):
                    end = hole
                return _bisect(files, begin, end, _is_no_valid)
        return self.segments.max_offset // CQ_UNIT.size

    def stored_end(self) -> int:
        """Return the queue offset at which the space in the files ends."""
        return self.segments.max_offset // CQ_UNIT.size

    def first_unit_offset(self) -> int:
        """Return the queue offset of the first unit that is not a filler (``fillPreBlank``)."""
        begin = self.segments.min_offset // CQ_UNIT.size
        end = self.segments.max_offset // CQ_UNIT.size
        with self._files() as files:
            if begin == end or _is_no_pre_blank(*files.place(begin)):
                return begin
            return _bisect(files, begin, end, _is_no_pre_blank)

    def correct_min_offset(self, min_phy_offset: int, max_queue_offset: int) -> int:
        """Return the first queue offset whose record is at or after ``min_phy_offset``.

        ``max_queue_offset`` (see `end_of_units`) if none is left. Unlike
        ``ConsumeQueue.correctMinOffset`` it searches past the first file too, and never counts
        fillers, which RocketMQ does if ``min_phy_offset`` is 0.
        """
        begin = min(self.first_unit_offset(), max_queue_offset)
        with self._files() as files:
            if begin == max_queue_offset or files.place(begin)[0] >= min_phy_offset:
                return begin
            return _bisect(
                files,
                begin,
                max_queue_offset,
                lambda offsets, _: offsets >= min_phy_offset,
            )

    def file_stop(self, queue_offset: int) -> int | None:
        """Return the end, in queue offsets, of the file that contains one; None if none does."""
        segment = self.segments.find(queue_offset * CQ_UNIT.size)
        stop = (segment.from_offset + segment.size) // CQ_UNIT.size if segment else queue_offset
        return stop if stop > queue_offset else None

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the next file (``ConsumeQueue.rollNextFile``)."""
        return queue_offset + self.units_per_file - queue_offset % self.units_per_file

    def file_boundaries(self) -> tuple[int, ...]:
        """Return the first queue offset of each file."""
        return tuple(s.from_offset // CQ_UNIT.size for s in self.segments)

    def _files(self) -> AbstractContextManager[_UnitFiles]:
        return nullcontext(self._held) if self._held else _UnitFiles(self)


class _UnitFiles(Closing):
    """Reads a queue's files, one open at a time, until another is needed or it is closed."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self._source: ByteSource | None = None
        self._seen: dict[int, tuple[int, int]] = {}

    def place(self, at: int) -> tuple[int, int]:
        """Return log offset and size of one unit; cached, as bisections read ends repeatedly."""
        found = self._seen.get(at)
        if found is None:
            file_at, _ = self._opened(at, at + 1)
            assert self._source is not None
            offset, size, _ = CQ_UNIT.struct.unpack(self._source.read_at(file_at, CQ_UNIT.size))
            found = self._seen[at] = offset, size
        return found

    def units(self, start: int, stop: int) -> Any:
        """Return at least one unit from ``start`` on, up to ``stop`` or the end of the file."""
        file_at, count = self._opened(start, stop)
        assert self._source is not None
        if count <= _BLOCK_UNITS:  # cheaper than a map
            return CQ_UNIT.table(self._source.read_at(file_at, count * CQ_UNIT.size))
        return CQ_UNIT.table(self._source.view(file_at, count * CQ_UNIT.size))

    def _opened(self, start: int, stop: int) -> tuple[int, int]:
        """Open the file of a unit; return its byte position there, and the units up to ``stop``."""
        segments = self._queue.segments
        segment = segments.find(start * CQ_UNIT.size)
        if segment is None:
            before = [s for s in segments if s.from_offset <= start * CQ_UNIT.size]
            path = before[-1].path if before else self._queue.topic
            raise CorruptRecordError(
                f"the next file of the consume queue, for queue offset {start}, is missing",
                path,
                segments.file_size,
            )
        if self._source is None or self._source.path != segment.path:
            self.close()
            self._source = self._queue.directory.open(segment.path)
        begin = segment.from_offset // CQ_UNIT.size
        held = min(self._source.size, segments.file_size) // CQ_UNIT.size
        count = min(stop, begin + held) - start
        if count <= 0:
            raise CorruptRecordError(
                f"the file ends before queue offset {start}; "
                f"{segments.file_size} bytes were expected",
                segment.path,
                self._source.size,
            )
        return (start - begin) * CQ_UNIT.size, count

    def first_hole(self, begin: int, end: int) -> int:
        """Return the first unit of a file's ``[begin, end)`` that seems to begin in a hole.

        Files are created at full length: the part without units is a hole, unless copying the store
        has filled it.
        """
        self._opened(begin, end)
        assert self._source is not None
        return min(begin - (-self._source.next_hole(0) // CQ_UNIT.size), end)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None


def _is_valid(offset: Any, size: Any) -> Any:
    return (offset >= 0) & (size > 0)


def _is_no_valid(offset: Any, size: Any) -> Any:
    return (offset < 0) | (size <= 0)


def _is_pre_blank(offset: Any, size: Any) -> Any:
    return (size == PRE_BLANK_SIZE) & (offset == 0)


def _is_no_pre_blank(offset: Any, size: Any) -> Any:
    return (size != PRE_BLANK_SIZE) | (offset != 0)


def _bisect(files: _UnitFiles, low: int, high: int, test: UnitTest) -> int:
    """Return the first unit of ``[low, high)`` that passes; ``high`` if none does.

    ``test`` gets log offsets and sizes; it fails up to some unit and passes from there on.
    """
    while high - low > _BLOCK_UNITS:
        middle = (low + high) // 2
        if test(*files.place(middle)):
            high = middle + 1  # the passing unit stays in the range
        else:
            low = middle + 1
    while low < high:
        block = files.units(low, high)
        passed = np.flatnonzero(test(block["commit_log_offset"], block["message_size"]))
        if len(passed):
            return low + int(passed[0])
        low += len(block)
    return high
