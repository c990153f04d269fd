"""Extension units of a queue that grows: where they end, and which files are needed no more.

Source: RocketMQ ``ConsumeQueueExt`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.files.segment_list import Segment, SegmentList
from store_core.layout.consume_queue import CQ_EXT_UNIT, CQ_UNIT, EXT_ADDRESS_BASE
from store_core.queue.consume_queue_ext import ConsumeQueueExt, is_ext_address
from store_core.queue.consume_queue_ext_writer import ConsumeQueueExtWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.files.store_directory import StoreDirectory
    from store_core.queue.consume_queue_ext import ExtUnits
    from store_core.queue.consume_queue_ext_writer import FilterBitmaps
    from store_core.queue.queue_files import QueueFiles

    Units = npt.NDArray[np.void]


class LiveQueueExt:
    """Files of extension units of one queue; used under the lock of its `LiveQueue`.

    Parameters
    ----------
    directory
        The store.
    segments
        The files that are there.
    files
        The same, to be written.
    filter_bitmaps
        See `ConsumeQueueExtWriter`.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        segments: Sequence[Segment],
        files: QueueFiles,
        filter_bitmaps: FilterBitmaps | None = None,
    ) -> None:
        self.writer = ConsumeQueueExtWriter(files, filter_bitmaps=filter_bitmaps)
        self._directory, self._files, self._bitmaps = directory, files, filter_bitmaps
        self._segments = {segment.from_offset: segment for segment in segments}
        self._is_ready = False

    def recover(self, units: Units) -> None:
        """Take the end of the last unit that is named by units of the queue's last files.

        Units behind it are named by nobody: a replay of RocketMQ left them. It overwrites them,
        and where a new unit ends inside of an old one its next start fails; see `ready`.
        """
        codes = units["tags_code"].astype(np.int64)
        addresses = codes[is_ext_address(codes)]
        end = min(self._segments, default=0)
        if len(addresses):
            address = int(addresses.max()) - EXT_ADDRESS_BASE
            end = address + self._size_at(address)
        elif len(units):
            end = self._end_of_files()
        self.writer = ConsumeQueueExtWriter(
            self._files, wrote_position=end, filter_bitmaps=self._bitmaps
        )
        self._is_ready = False

    def ready(self) -> None:
        """Erase what lies behind the end before anything is appended there."""
        if not self._is_ready:
            self.erase_behind()

    def read(self, tags_codes: npt.NDArray[np.int64]) -> ExtUnits:
        """Look up the extension units that tags codes name; see ``ConsumeQueueExt.read``."""
        segments = SegmentList(
            [self._segments[begin] for begin in sorted(self._segments)], self._files.file_size
        )
        return ConsumeQueueExt(self._directory, segments).read(tags_codes)

    def erase_behind(self) -> None:
        """Erase what lies behind the end, and delete later files."""
        end = self.writer.wrote_position
        for begin in sorted(self._segments, reverse=True):
            if begin >= end:
                self._files.delete(begin)
                del self._segments[begin]
        self._files.erase(end)
        self._is_ready = True

    def delete_before(self, unit: Units) -> None:
        """Delete the files that end before the extension unit of the queue's first unit."""
        code = unit["tags_code"].astype(np.int64)
        if not is_ext_address(code)[0]:
            return
        first = int(code[0]) - EXT_ADDRESS_BASE
        for begin in sorted(self._segments):
            if begin + self._files.file_size > first:
                return
            self._files.delete(begin)
            del self._segments[begin]

    def added(self) -> None:
        """Take note of the files that the writer has made."""
        size = self._files.file_size
        begin = max(self._segments, default=-size) + size
        while begin < self.writer.wrote_position:
            self._segments[begin] = Segment(begin, str(self._files.path(begin)), size)
            begin += size

    def destroy(self) -> None:
        """Delete all files."""
        for begin in list(self._segments):
            self._files.delete(begin)
        self._segments.clear()
        self.recover(np.empty(0, CQ_UNIT.dtype))

    def _size_at(self, address: int) -> int:
        size = self._files.file_size
        segment = self._segments.get(address - address % size)
        if segment is None or address % size + CQ_EXT_UNIT.size > segment.size:
            return CQ_EXT_UNIT.size
        with self._directory.open(segment.path) as source:
            unit = CQ_EXT_UNIT.unpack(source.read_at(address % size, CQ_EXT_UNIT.size))
        return max(int(unit.unit_size), CQ_EXT_UNIT.size)

    def _end_of_files(self) -> int:
        """Return where a walk through the units of the last file ends."""
        begin = max(self._segments, default=None)
        if begin is None:
            return 0
        with self._directory.open(self._segments[begin].path) as source:
            data, at = source.read_at(0, source.size), 0
        while at + CQ_EXT_UNIT.size <= len(data):
            size = int.from_bytes(data[at : at + 2], "big", signed=True)
            if size < CQ_EXT_UNIT.size:
                break
            at += size
        return begin + min(at, len(data))
