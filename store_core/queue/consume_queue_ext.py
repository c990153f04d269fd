# SPDX-License-Identifier: Apache-2.0
"""Consume queue extension: units of variable length that a queue's tags codes point to.

A unit has a tags code, a time and a filter bitmap. It cannot be rebuilt without the filters.

Source: RocketMQ ``ConsumeQueueExt`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import binary_parts, pa
from store_core.files.segment_list import Segment, SegmentList
from store_core.layout import (
    CQ_EXT_END_BLANK_BYTES,
    CQ_EXT_UNIT,
    CQ_UNIT,
    EXT_ADDRESS_BASE,
    MAX_EXT_ADDRESS,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import StoreDirectory
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_files import QueueFiles

    Int64s = npt.NDArray[np.int64]
    Units = npt.NDArray[np.void]

_END_MARK = (-1).to_bytes(2, "big", signed=True)
_MAX_UNIT_BYTES = 32767


def is_ext_address(tags_code: Int64s) -> npt.NDArray[np.bool_]:
    """Return which tags codes are addresses of extension units (real hashes are larger)."""
    return tags_code <= MAX_EXT_ADDRESS


class ExtUnits(NamedTuple):
    """Rows parallel to the given addresses.

    Where ``found`` is false, ``tags_code`` is the given address (filters let such messages pass),
    and ``store_timestamp`` and ``bitmap_size`` are 0.
    """

    tags_code: Int64s
    store_timestamp: Int64s
    found: npt.NDArray[np.bool_]
    bitmap_size: Int64s
    """Bytes of each unit's filter bitmap; 0 if it has none."""
    bitmaps: npt.NDArray[np.uint8]
    """Shape ``(rows, bitmap_bytes)``: bitmaps of exactly this size; zeros in other rows."""


def read_ext_units(
    directory: StoreDirectory, segments: SegmentList, addresses: Int64s, *, bitmap_bytes: int = 0
) -> ExtUnits:
    """Look up units in the files of one queue by address (``ConsumeQueueExt.get``, RocketMQ 5.3.3).

    Units that are missing, cut, or inconsistent count as not found.

    Parameters
    ----------
    bitmap_bytes
        Also read bitmaps of this size, in bytes per address; reads none if 0.

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
    real_offset = addresses - EXT_ADDRESS_BASE
    real_offset[~is_ext_address(addresses)] = -1
    for segment in segments:
        position = real_offset - segment.from_offset
        rows = np.flatnonzero(
            (real_offset >= segment.from_offset)
            & (position < segments.file_size)
            & (position <= segment.size - CQ_EXT_UNIT.size)
        )
        if len(rows):
            with directory.open(segment.path) as source:
                _read_rows(source, rows, position[rows], result)
    return result


def _read_rows(
    source: ByteSource,
    rows: Int64s,
    position: Int64s,
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


class ConsumeQueueExtWriter:
    """Writes extension units of one queue; used under the lock of its `ConsumeQueueWriter`."""

    def __init__(self, directory: StoreDirectory, listed: SegmentList, files: QueueFiles) -> None:
        self.wrote_position = 0
        self._directory, self._files = directory, files
        self._segments = {segment.from_offset: segment for segment in listed}
        self._is_ready = False

    def recover(self, units: Units) -> None:
        """Set the end to that of the last extension unit that the queue's last units point to.

        No queue unit points to later ones, which a replay by RocketMQ left. RocketMQ overwrites
        them, and its next start fails if a new unit ends inside an old one, so `ready` erases them.
        """
        codes = units["tags_code"].astype(np.int64)
        addresses = codes[is_ext_address(codes)]
        end = min(self._segments, default=0)
        if len(addresses):
            address = int(addresses.max()) - EXT_ADDRESS_BASE
            end = address + self._size_at(address)
        elif len(units):
            end = self._end_of_files()
        self.wrote_position = end
        self._is_ready = False

    def append(self, requests: DispatchRequests) -> Int64s:
        """Append a unit for each row; return the tags codes for the queue's units.

        These are the addresses of the extension units. A unit too large for a file is left out, and
        its row's tags code stays.

        Raises
        ------
        OSError
            A file cannot be created or written.
        """
        lengths, bitmaps = _bitmaps(requests)
        sizes = lengths + CQ_EXT_UNIT.size
        largest = min(self._files.file_size - CQ_EXT_END_BLANK_BYTES, _MAX_UNIT_BYTES)
        fits = sizes <= largest
        rows = np.flatnonzero(fits)
        headers = np.empty(len(rows), CQ_EXT_UNIT.dtype)
        headers["unit_size"] = sizes[rows]
        headers["tags_code"] = requests.tags_code[rows]
        headers["store_timestamp"] = requests.store_timestamp[rows]
        headers["bit_map_size"] = lengths[rows]
        kept = bitmaps[np.repeat(fits, lengths)]
        tags_code = requests.tags_code.copy()
        units = _join(headers, lengths[rows], kept)
        tags_code[rows] = self._pack(units, sizes[rows]) + EXT_ADDRESS_BASE
        self._know_files()
        return tags_code

    def flush(self) -> None:
        """Make everything written so far survive a power loss."""
        self._files.flush()

    def _pack(self, data: bytes, sizes: Int64s) -> Int64s:
        """Write units across as many files as needed; return where each begins."""
        # Four units of 20 bytes, files of 64 bytes, the last 4 of them for the end mark: three fit
        # from position 0, and begin at [0, 20, 40]; the mark is written at 60, the rest stays zero.
        # The fourth begins the next file: positions = [0, 20, 40, 64], and 84 is the new end.
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

    def ready(self) -> None:
        """Erase everything after the end once, before anything is appended there."""
        if not self._is_ready:
            self.erase_behind()

    def read(self, tags_codes: Int64s) -> ExtUnits:
        """Look up the extension units that tags codes point to; see `read_ext_units`."""
        segments = SegmentList(
            [self._segments[begin] for begin in sorted(self._segments)], self._files.file_size
        )
        return read_ext_units(self._directory, segments, tags_codes)

    def erase_behind(self) -> None:
        """Erase everything after the end, and delete later files."""
        end = self.wrote_position
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

    def destroy(self) -> None:
        """Delete all files."""
        for begin in list(self._segments):
            self._files.delete(begin)
        self._segments.clear()
        self.recover(np.empty(0, CQ_UNIT.dtype))

    def _know_files(self) -> None:
        """List the files created since."""
        size = self._files.file_size
        begin = max(self._segments, default=-size) + size
        while begin < self.wrote_position:
            self._segments[begin] = Segment(begin, str(self._files.path(begin)), size)
            begin += size

    def _size_at(self, address: int) -> int:
        size = self._files.file_size
        segment = self._segments.get(address - address % size)
        if segment is None or address % size + CQ_EXT_UNIT.size > segment.size:
            return CQ_EXT_UNIT.size
        with self._directory.open(segment.path) as source:
            unit = CQ_EXT_UNIT.unpack(source.read_at(address % size, CQ_EXT_UNIT.size))
        return max(int(unit.unit_size), CQ_EXT_UNIT.size)

    def _end_of_files(self) -> int:
        """Return the position where a walk through the units of the last file ends."""
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


def _bitmaps(requests: DispatchRequests) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Return the length of each row's bitmap (0 without one), and all bitmaps concatenated."""
    if requests.filter_bitmap is None:
        return np.zeros(len(requests), np.int64), np.empty(0, np.uint8)
    offsets, data = binary_parts(pa.array(requests.filter_bitmap, pa.binary()))
    return np.diff(offsets).astype(np.int64), data[offsets[0] : offsets[-1]]


def _join(headers: npt.NDArray[np.void], lengths: Int64s, bitmaps: npt.NDArray[np.uint8]) -> bytes:
    """Return units: each header followed by its bitmap."""
    if len(bitmaps) == 0:
        return headers.tobytes()
    # Headers of 20 bytes, bitmaps of 0 and 14 bytes: the units begin at 0 and 20, and end at 54.
    # All other bytes, 40 to 53, are filled with the bitmaps in order.
    sizes = lengths + CQ_EXT_UNIT.size
    begin = np.cumsum(sizes) - sizes
    joined = np.empty(int(sizes.sum()), np.uint8)
    is_header = np.zeros(len(joined), bool)
    places = (begin[:, None] + np.arange(CQ_EXT_UNIT.size)).ravel()
    is_header[places] = True
    joined[places] = headers.view(np.uint8)
    joined[~is_header] = bitmaps
    return joined.tobytes()
