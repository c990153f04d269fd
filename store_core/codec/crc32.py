# SPDX-License-Identifier: Apache-2.0
"""CRC-32 of many byte ranges in one call, and the records whose CRC is wrong.

Source: RocketMQ ``UtilAll.crc32`` (release 5.3.3), which clears the top bit.

A library call takes 0.15 µs, however short the range. So short ranges are computed side by side,
four bytes of each per step: leading zeros leave a register of 0 unchanged, so ranges of all lengths
can end in the same column. Longer ranges are computed one by one: 1 KB takes 0.45 µs with Python's
zlib, and 0.17 µs with zlib-ng (extra ``speed``), where it is installed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core import native
from store_core.layout import CRC32_PROPERTY_BYTES, NAME_VALUE_SEPARATOR, PROPERTY_CRC32

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]
    CrcTable = npt.NDArray[np.uint32]

_MARK = np.frombuffer(PROPERTY_CRC32.encode() + bytes([NAME_VALUE_SEPARATOR]), np.uint8)
_POWERS = 10 ** np.arange(CRC32_PROPERTY_BYTES - len(_MARK) - 1, dtype=np.int64)
_ZERO, _NINE = ord("0"), ord("9")


try:
    from zlib_ng.zlib_ng import crc32
except ImportError:
    from zlib import crc32


__all__ = ["crc32", "crc32_ranges"]


_ALL = np.uint32(0xFFFFFFFF)


_POLYNOMIAL = np.uint32(0xEDB88320)


_TOP_CLEARED = np.uint32(0x7FFFFFFF)


_BLOCK_ROWS = 1 << 16


_ROWS_AT_ONCE = 1 << 14  # with more, registers and tables together exceed a core's cache


_ROWS_TURNED = 1 << 10


_STEP_BYTES = 4


_HALF_BITS = np.uint32(16)


_LOW_HALF = np.uint32(0xFFFF)


_GROUP_BYTES = 16


_LONGEST = 128  # zlib's own loop is as fast beyond this


_ROWS_PER_STEP = 128  # fewer rows do not repay the cost of a step


def crc32_ranges(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> CrcTable:
    """Return the CRC of each range with its top bit cleared; 0 for an empty range.

    Parameters
    ----------
    data
        Contiguous bytes.
    """
    found = np.empty(len(starts), np.uint32)
    if native.kernel is not None:
        starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
        native.kernel.crc32_ranges(data, starts, ends, found)
        return found
    for first in range(0, len(starts), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        found[rows] = _block(data, starts[rows], ends[rows])
    return found & _TOP_CLEARED


def _block(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> CrcTable:
    lengths = ends - starts
    # Ranges of up to 3 bytes have no room for the register's initial value.
    short = (lengths >= _STEP_BYTES) & (lengths <= _LONGEST)
    widths = np.where(short, -(-lengths // _GROUP_BYTES) * _GROUP_BYTES, 0)
    short &= ends >= widths
    counts = np.bincount(np.where(short, widths, 0) // _GROUP_BYTES)
    found = np.empty(len(starts), np.uint32)
    alone = ~short
    for group in np.flatnonzero(counts[1:]).tolist():
        width = (group + 1) * _GROUP_BYTES
        chosen = short & (widths == width)
        if counts[group + 1] < _ROWS_PER_STEP * (width // _STEP_BYTES):
            alone |= chosen
        elif counts[group + 1] == len(starts):
            return _side_by_side(data, ends, lengths, width)
        else:
            found[chosen] = _side_by_side(data, ends[chosen], lengths[chosen], width)
    found[alone] = _one_by_one(data, starts[alone], ends[alone])
    return found


def _one_by_one(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> CrcTable:
    view = memoryview(data)
    found = [crc32(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist())]
    return np.array(found, np.uint32)


def _side_by_side(
    data: npt.NDArray[np.uint8], ends: Int64s, lengths: Int64s, width: int
) -> CrcTable:
    """Return the CRCs of ranges of more than ``width - 16`` and at most ``width`` bytes."""
    width -= (width - int(lengths.max())) // _STEP_BYTES * _STEP_BYTES
    overlapping = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    found = np.empty(len(ends), np.uint32)
    most = min(len(ends), _ROWS_AT_ONCE)
    # Memory is reused: allocating it for each block takes as long as all the work done in it.
    columns = np.empty((width // _STEP_BYTES, most), np.uint32)
    for first in range(0, len(ends), most):
        rows = slice(first, first + most)
        unused = width - lengths[rows]
        begins = ends[rows] - width
        for at in range(0, len(begins), _ROWS_TURNED):
            words = overlapping[begins[at : at + _ROWS_TURNED]].view("<u4")
            turned = words.reshape(-1, len(columns)).T
            columns[:, at : at + turned.shape[1]] = turned
        found[rows] = _registers(columns[:, : len(begins)], unused)
    return found


def _registers(columns: CrcTable, unused: Int64s) -> CrcTable:
    """Return the CRCs of ranges laid out side by side, their last bytes in the last column."""
    _mask_beginning(columns, unused)
    low, high = _tables()
    crc, after_low, after_high = np.zeros((3, len(unused)), np.uint32)
    for column in columns:
        crc ^= column
        # No index is out of range: "wrap" skips the bounds check.
        low.take(crc & _LOW_HALF, out=after_low, mode="wrap")
        high.take(crc >> _HALF_BITS, out=after_high, mode="wrap")
        np.bitwise_xor(after_low, after_high, out=crc)
    return crc ^ _ALL


def _mask_beginning(columns: CrcTable, unused: Int64s) -> None:
    """Clear the bytes before each range, and XOR the initial register into its first four."""
    kept, first_value = _masks()
    is_one_length = (unused == unused[0]).all()  # often the case
    for number in range(min(len(columns), _GROUP_BYTES // _STEP_BYTES + 1)):
        if is_one_length:
            begin: Any = min(max(int(unused[0]) - number * _STEP_BYTES, -_STEP_BYTES), _STEP_BYTES)
        else:
            begin = np.clip(unused - number * _STEP_BYTES, -_STEP_BYTES, _STEP_BYTES)
        columns[number] &= kept[begin + _STEP_BYTES]
        columns[number] ^= first_value[begin + _STEP_BYTES]


@lru_cache(maxsize=1)
def _masks() -> tuple[CrcTable, CrcTable]:
    """Return the bits to keep and to invert if a range begins -4 to 4 bytes into a word."""
    keep, invert = [], []
    for begin in range(-_STEP_BYTES, _STEP_BYTES + 1):
        inside = [at >= begin for at in range(_STEP_BYTES)]
        first = [begin <= at < begin + _STEP_BYTES for at in range(_STEP_BYTES)]
        keep.append(int.from_bytes(bytes(255 * bit for bit in inside), "little"))
        invert.append(int.from_bytes(bytes(255 * bit for bit in first), "little"))
    return np.array(keep, np.uint32), np.array(invert, np.uint32)


@lru_cache(maxsize=1)
def _tables() -> tuple[CrcTable, CrcTable]:
    """Return what four bytes turn the low and the high half of a register into."""
    high = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(_HALF_BITS):
        high = (high >> np.uint32(1)) ^ (high & np.uint32(1)) * _POLYNOMIAL
    low = high.copy()
    for _ in range(2):
        low = (low >> np.uint32(8)) ^ high[(low & np.uint32(0xFF)) << np.uint32(8)]
    return low, high


class BadBody(NamedTuple):
    """A record with a valid frame and a bad body."""

    row: int
    reason: str


class BadRecord(NamedTuple):
    """A record that ends with a wrong CRC of the whole record."""

    row: int
    reason: str


def body_crc_failures(frames: RecordFrames) -> list[BadBody]:
    """Return the rows whose stored body does not match the CRC in the header.

    An empty body is never checked, as in RocketMQ.
    """
    begin, length = frames.body_start, frames.body_length
    actual = crc32_ranges(frames.data, begin, begin + length)
    expected = frames.column("body_crc").view(np.uint32)
    wrong = np.flatnonzero((actual != expected) & (length > 0))
    return [
        BadBody(row, f"the body's CRC is {actual[row]}, but the record says {expected[row]}")
        for row in wrong.tolist()
    ]


def property_crc_failures(frames: RecordFrames) -> list[BadRecord]:
    """Return the rows that end with a wrong CRC of the whole record.

    That CRC is the last property, if it has the right name: ten digits, least significant first.
    """
    rows = rows_with_property_crc(frames)
    if len(rows) == 0:
        return []
    ends = _tail_start(frames)[rows]
    tails = np.lib.stride_tricks.sliding_window_view(frames.data, CRC32_PROPERTY_BYTES)[ends]
    digits = tails[:, len(_MARK) : -1].astype(np.int64)
    is_number = ((digits >= _ZERO) & (digits <= _NINE)).all(axis=1)
    stored = np.where(is_number, (digits - _ZERO) @ _POWERS, -1)
    actual = crc32_ranges(frames.data, frames.position[rows], ends)
    wrong = np.flatnonzero(actual != stored)
    return [
        BadRecord(
            int(rows[at]), f"the record's CRC is {actual[at]}, but its property says {stored[at]}"
        )
        for at in wrong.tolist()
    ]


def rows_with_property_crc(frames: RecordFrames) -> Int64s:
    """Return the rows that end with a CRC of the whole record (since 5.2.0, if switched on)."""
    rows = np.flatnonzero(frames.properties_length >= CRC32_PROPERTY_BYTES)
    start = _tail_start(frames)
    for at in range(len(_MARK) - 1, -1, -1):  # few records pass the first test
        rows = rows[frames.data[start[rows] + at] == _MARK[at]]
    return rows


def _tail_start(frames: RecordFrames) -> Int64s:
    return frames.properties_start + frames.properties_length - CRC32_PROPERTY_BYTES


# Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``MessageDecoder.createCrc32`` (release
# 5.3.3). By default RocketMQ does not check a CRC of the whole record. No Arrow kernels are used:
# planning checks records too, and loading the kernels takes longer than planning.
def first_invalid(frames: RecordFrames, *, check_crc: bool = True) -> int:
    """Return the first row that is not a valid record; the number of rows if all are."""
    good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
    if good == 0 or not check_crc:
        return good
    checked = frames if good == len(frames) else frames.take(np.arange(good))
    return min([good, *crc_failures(checked)])


def crc_failures(frames: RecordFrames) -> dict[int, str]:
    """Return the rows with a wrong CRC, and which one is wrong: the body's or the record's."""
    bad = property_crc_failures(frames)
    found = {failure.row: "the CRC of the whole record is wrong" for failure in bad}
    for failure in body_crc_failures(frames):
        found[failure.row] = "the CRC of its body is wrong"
    return found
