"""Consume queue extension: units of variable length that tags codes of a queue point to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.files.segment_list import SegmentList, load_segments
from store_core.layout.consume_queue import CQ_EXT_UNIT, EXT_ADDRESS_BASE, MAX_EXT_ADDRESS
from store_core.queue.queue_directories import CONSUME_QUEUE_EXT

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import StoreDirectory


def is_ext_address(tags_code: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which tags codes are addresses of extension units (real hashes are larger)."""
    return tags_code <= MAX_EXT_ADDRESS


class ExtUnits(NamedTuple):
    """Rows parallel to the addresses that were read.

    Where ``found`` is false, ``tags_code`` is the address as it was given (a filter lets such
    messages pass), and ``store_timestamp`` and ``bitmap_size`` are 0.
    """

    tags_code: npt.NDArray[np.int64]
    store_timestamp: npt.NDArray[np.int64]
    found: npt.NDArray[np.bool_]
    bitmap_size: npt.NDArray[np.int64]
    """Bytes of filter bitmaps; 0 where a unit has none."""
    bitmaps: npt.NDArray[np.uint8]
    """Shape ``(rows, bytes asked for)``: bitmaps of just this size; zeros in other rows."""


class ConsumeQueueExt:
    """Extension units of one queue; it grows at its end. Without filters it cannot be rebuilt."""

    def __init__(self, directory: StoreDirectory, segments: SegmentList) -> None:
        self.directory = directory
        self.segments = segments

    def read(self, addresses: npt.NDArray[np.int64], *, bitmap_bytes: int = 0) -> ExtUnits:
        """Look up units by address (``ConsumeQueueExt.get``, RocketMQ 5.3.3).

        Units that are missing, cut, or contradict themselves count as not found.

        Parameters
        ----------
        bitmap_bytes
            Bitmaps of this size are read too, this many bytes for each address; 0: none are.

        Raises
        ------
        StoreReadError
            A file cannot be read.
        """
        count = len(addresses)
        result = ExtUnits(
            addresses.copy(),
            np.zeros(count, np.int64),
            np.zeros(count, bool),
            np.zeros(count, np.int64),
            np.zeros((count, bitmap_bytes), np.uint8),
        )
        real_offset = addresses - EXT_ADDRESS_BASE  # of other tags codes: after every file
        real_offset[~is_ext_address(addresses)] = -1
        for segment in self.segments:
            position = real_offset - segment.from_offset
            rows = np.flatnonzero(
                (real_offset >= segment.from_offset)
                & (position < self.segments.file_size)
                & (position <= segment.size - CQ_EXT_UNIT.size)
            )
            if len(rows):
                with self.directory.open(segment.path) as source:
                    _read_rows(source, rows, position[rows], result)
        return result


def _read_rows(
    source: ByteSource,
    rows: npt.NDArray[np.int64],
    position: npt.NDArray[np.int64],
    result: ExtUnits,
) -> None:
    inside = position <= source.size - CQ_EXT_UNIT.size
    rows, position = rows[inside], position[inside]
    units: Any = source.gather(position, CQ_EXT_UNIT.size).view(CQ_EXT_UNIT.dtype)[:, 0]
    unit_size = units["unit_size"].astype(np.int64)
    bit_map_size = units["bit_map_size"].astype(np.int64)
    good = (bit_map_size >= 0) & (unit_size == CQ_EXT_UNIT.size + bit_map_size)
    good &= position + unit_size <= source.size
    rows, position, units = rows[good], position[good], units[good]
    bit_map_size = bit_map_size[good]
    result.tags_code[rows] = units["tags_code"]
    result.store_timestamp[rows] = units["store_timestamp"]
    result.found[rows] = True
    result.bitmap_size[rows] = bit_map_size
    wanted = result.bitmaps.shape[1]
    if wanted:
        fits = bit_map_size == wanted
        result.bitmaps[rows[fits]] = source.gather(position[fits] + CQ_EXT_UNIT.size, wanted)


def open_consume_queue_ext(
    directory: StoreDirectory, path: str, file_size: int | None
) -> ConsumeQueueExt:
    """List the files of a queue's directory below ``consumequeue_ext``.

    Raises
    ------
    StoreFormatError
        File names and the size (key ``mappedFileSizeConsumeQueueExt``) do not fit.
    """
    segments = load_segments(
        directory.list(path), file_size=file_size, option=CONSUME_QUEUE_EXT.size_option
    )
    return ConsumeQueueExt(directory, segments)
