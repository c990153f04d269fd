"""What queues of units have in common: the files of one queue, read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

from store_core.files.segment_list import SegmentList, list_segments

if TYPE_CHECKING:
    from store_core.files.store_directory import StoreDirectory
    from store_core.queue.queue_directories import QueueKind

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
