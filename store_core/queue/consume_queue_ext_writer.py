"""Write consume queue extensions: units of variable length with tags code, time and bitmap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.layout.consume_queue import (
    CQ_EXT_END_BLANK_BYTES,
    CQ_EXT_UNIT,
    EXT_ADDRESS_BASE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_files import QueueFiles

    Int64s = npt.NDArray[np.int64]
    FilterBitmaps = Callable[[DispatchRequests], Sequence[bytes | None]]

_END_MARK = (-1).to_bytes(2, "big", signed=True)
_MAX_UNIT_BYTES = 32767


class ConsumeQueueExtWriter:
    """Appends extension units to one queue (RocketMQ ``ConsumeQueueExt``, release 5.3.3).

    Parameters
    ----------
    files
        Where the units go.
    wrote_position
        Byte behind the last unit, in the queue.
    filter_bitmaps
        Returns the filter bitmap of each row, None where there is none; default: none at all.
    """

    def __init__(
        self,
        files: QueueFiles,
        *,
        wrote_position: int = 0,
        filter_bitmaps: FilterBitmaps | None = None,
    ) -> None:
        self._files = files
        self.wrote_position = wrote_position
        self._filter_bitmaps = filter_bitmaps

    def append(self, requests: DispatchRequests) -> Int64s:
        """Append a unit for each row; return the tags codes that the queue's units get.

        These are the addresses of the extension units. Where a unit is too large for a file, it is
        left out and the tags code stays.

        Raises
        ------
        OSError
            A file cannot be created or written.
        """
        bitmaps = None if self._filter_bitmaps is None else self._filter_bitmaps(requests)
        lengths = np.zeros(len(requests), np.int64)
        if bitmaps is not None:
            lengths[:] = [len(bitmap or b"") for bitmap in bitmaps]
        sizes = lengths + CQ_EXT_UNIT.size
        largest = min(self._files.file_size - CQ_EXT_END_BLANK_BYTES, _MAX_UNIT_BYTES)
        rows = np.flatnonzero(sizes <= largest)
        headers = np.empty(len(rows), CQ_EXT_UNIT.dtype)
        headers["unit_size"] = sizes[rows]
        headers["tags_code"] = requests.tags_code[rows]
        headers["store_timestamp"] = requests.store_timestamp[rows]
        headers["bit_map_size"] = lengths[rows]
        kept = None if bitmaps is None else [bitmaps[row] or b"" for row in rows.tolist()]
        tags_code = requests.tags_code.copy()
        tags_code[rows] = self._pack(_join(headers, kept), sizes[rows]) + EXT_ADDRESS_BASE
        return tags_code

    def flush(self) -> None:
        """Make what was written survive a loss of power."""
        self._files.flush()

    def _pack(self, data: bytes, sizes: Int64s) -> Int64s:
        """Write units into as many files as they take; return where each begins."""
        begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        positions = np.empty(len(sizes), np.int64)
        at, file_size = 0, self._files.file_size
        while at < len(sizes):
            position = self.wrote_position
            file_end = position - position % file_size + file_size
            room = file_end - CQ_EXT_END_BLANK_BYTES - position
            stop = int(np.searchsorted(begin, begin[at] + room, "right")) - 1
            positions[at:stop] = position + begin[at:stop] - begin[at]
            block = data[int(begin[at]) : int(begin[stop])]
            if stop < len(sizes):  # the next unit does not fit: the file ends here
                self._files.write(position, block + _END_MARK)
                self.wrote_position = file_end
            else:
                self._files.write(position, block)
                self.wrote_position = position + len(block)
            at = stop
        return positions


def _join(headers: npt.NDArray[np.void], bitmaps: Sequence[bytes] | None) -> bytes:
    packed = headers.tobytes()
    if bitmaps is None:
        return packed
    size = CQ_EXT_UNIT.size
    return b"".join(
        piece
        for row, bitmap in enumerate(bitmaps)
        for piece in (packed[row * size : (row + 1) * size], bitmap)
    )
