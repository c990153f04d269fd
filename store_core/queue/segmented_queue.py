"""What queues of units have in common: the files of one queue, read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from store_core.files.segment_list import SegmentList, list_segments

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt

    from store_core.files.store_directory import StoreDirectory
    from store_core.queue.queue_directories import QueueKind

    Units = npt.NDArray[np.void]

_Queue = TypeVar("_Queue", bound="SegmentedQueue")


class SegmentedQueue:
    """Files of one queue; none is open between calls.

    Attributes
    ----------
    units_per_file
        Units of a whole file; 0 where there is no file to tell.
    """

    kind: ClassVar[QueueKind]

    def __init__(
        self, directory: StoreDirectory, topic: str, queue_id: int, segments: SegmentList
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.queue_id = queue_id
        self.segments = segments
        self.units_per_file = segments.file_size // self.kind.unit_bytes

    @classmethod
    def open(
        cls: type[_Queue],
        directory: StoreDirectory,
        topic: str,
        queue_id: int,
        path: str,
        file_size: int | None,
    ) -> _Queue:
        """List the files of a queue's directory (see ``list_consume_queues``); opens none.

        ``file_size`` is the configured one, in bytes; None: what the files show.

        Raises
        ------
        StoreFormatError
            File names and the size (key ``kind.size_option``) do not fit.
        """
        segments = list_segments(
            lambda: directory.list(path),
            file_size=file_size,
            unit_bytes=cls.kind.unit_bytes,
            option=cls.kind.size_option,
            forget=lambda: directory.forget(path),
        )
        return cls(directory, topic, queue_id, segments)

    def with_segments(self: _Queue, segments: SegmentList) -> _Queue:
        """Return the queue with other files."""
        return type(self)(self.directory, self.topic, self.queue_id, segments)


class StoredUnits(Protocol):
    """The units of one topic and queue id: in files (`ConsumeQueue`), or in a database.

    Attributes
    ----------
    units_per_file
        Units of a whole file; 0 where there are no files.
    """

    topic: str
    queue_id: int
    units_per_file: int

    def held_open(self) -> AbstractContextManager[StoredUnits]:
        """Give the same queue for several calls in one thread, which need not open files anew."""

    def read_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)``, clipped to what is held; zeros where one is not."""

    def place_of(self, queue_offset: int) -> tuple[int, int]:
        """Return offset and size of one unit, which is held."""

    def exact_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)``, all of them, of which the caller knew."""

    def end_of_units(self) -> int:
        """Return the queue offset after the last unit."""

    def stored_end(self) -> int:
        """Return the queue offset after the last for which there is room, written or not."""

    def first_unit_offset(self) -> int:
        """Return the queue offset of the first unit."""

    def correct_min_offset(self, min_phy_offset: int, max_queue_offset: int) -> int:
        """Return the first queue offset whose record lies at or after ``min_phy_offset``."""

    def file_stop(self, queue_offset: int) -> int | None:
        """Return the queue offset after the units of the file that holds one; None without it."""

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the next file."""

    def file_boundaries(self) -> tuple[int, ...]:
        """Return the first queue offset of each file."""
