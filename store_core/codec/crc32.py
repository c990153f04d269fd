"""CRC-32 of many byte ranges at once, as RocketMQ stores them.

Source: RocketMQ ``UtilAll.crc32`` (release 5.3.3), which clears the top bit.

A call of a library takes 0.15 µs, however short the bytes. So short ranges go through the CRC side
by side, four bytes of each in a step: leading zeros leave a register of 0 as it is, so ranges of
all lengths can end in the same column. Longer ones go one by one: 1 KB takes 0.45 µs with Python's
zlib, and 0.17 µs with zlib-ng (extra ``speed``), where it is installed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:
    from zlib import crc32

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Table = npt.NDArray[np.uint32]

__all__ = ["crc32", "crc32_ranges"]

_ALL = np.uint32(0xFFFFFFFF)
_POLYNOMIAL = np.uint32(0xEDB88320)
_TOP_CLEARED = np.uint32(0x7FFFFFFF)
_BLOCK_ROWS = 1 << 16
_ROWS_AT_ONCE = 1 << 14  # of more, registers and tables together leave a core's cache
_ROWS_TURNED = 1 << 10
_STEP_BYTES = 4
_HALF_BITS = np.uint32(16)
_LOW_HALF = np.uint32(0xFFFF)
_GROUP_BYTES = 16
_LONGEST = 128  # zlib's own loop is as fast after this
_ROWS_PER_STEP = 128  # fewer rows do not repay what a step costs


def crc32_ranges(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> Table:
    """Return the CRC of each range, its top bit cleared; 0 for empty ones.

    Parameters
    ----------
    data
        Contiguous bytes.
    """
    found = np.empty(len(starts), np.uint32)
    for first in range(0, len(starts), _BLOCK_ROWS):
        rows = slice(first, first + _BLOCK_ROWS)
        found[rows] = _block(data, starts[rows], ends[rows])
    return found & _TOP_CLEARED


def _block(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> Table:
    lengths = ends - starts
    # Up to 3 bytes cannot take up the register's first value.
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


def _one_by_one(data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> Table:
    view = memoryview(data)
    found = [crc32(view[a:b]) for a, b in zip(starts.tolist(), ends.tolist())]
    return np.array(found, np.uint32)


def _side_by_side(data: npt.NDArray[np.uint8], ends: Int64s, lengths: Int64s, width: int) -> Table:
    """Return the CRCs of ranges of up to ``width`` bytes, and of more than 16 fewer."""
    width -= (width - int(lengths.max())) // _STEP_BYTES * _STEP_BYTES
    overlapping = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    found = np.empty(len(ends), np.uint32)
    most = min(len(ends), _ROWS_AT_ONCE)
    # The same memory each time: as much of it anew takes as long as all that is done with it.
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


def _registers(columns: Table, unused: Int64s) -> Table:
    """Return the CRCs of ranges that lie side by side; their last bytes are in the last column."""
    _mask_beginning(columns, unused)
    low, high = _tables()
    crc, after_low, after_high = np.zeros((3, len(unused)), np.uint32)
    for column in columns:
        crc ^= column
        # No index is outside: "wrap" spares looking at them.
        low.take(crc & _LOW_HALF, out=after_low, mode="wrap")
        high.take(crc >> _HALF_BITS, out=after_high, mode="wrap")
        np.bitwise_xor(after_low, after_high, out=crc)
    return crc ^ _ALL


def _mask_beginning(columns: Table, unused: Int64s) -> None:
    """Clear the bytes before each range, and put the register's first value into its first four."""
    kept, first_value = _masks()
    is_one_length = (unused == unused[0]).all()  # as often
    for number in range(min(len(columns), _GROUP_BYTES // _STEP_BYTES + 1)):
        if is_one_length:
            begin: Any = min(max(int(unused[0]) - number * _STEP_BYTES, -_STEP_BYTES), _STEP_BYTES)
        else:
            begin = np.clip(unused - number * _STEP_BYTES, -_STEP_BYTES, _STEP_BYTES)
        columns[number] &= kept[begin + _STEP_BYTES]
        columns[number] ^= first_value[begin + _STEP_BYTES]


@lru_cache(maxsize=1)
def _masks() -> tuple[Table, Table]:
    """For a range that begins -4 to 4 bytes after a word: what to keep, and what to invert."""
    keep, invert = [], []
    for begin in range(-_STEP_BYTES, _STEP_BYTES + 1):
        inside = [at >= begin for at in range(_STEP_BYTES)]
        first = [begin <= at < begin + _STEP_BYTES for at in range(_STEP_BYTES)]
        keep.append(int.from_bytes(bytes(255 * bit for bit in inside), "little"))
        invert.append(int.from_bytes(bytes(255 * bit for bit in first), "little"))
    return np.array(keep, np.uint32), np.array(invert, np.uint32)


@lru_cache(maxsize=1)
def _tables() -> tuple[Table, Table]:
    """Return what the low and the high half of a register become after four bytes."""
    high = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(_HALF_BITS):
        high = (high >> np.uint32(1)) ^ (high & np.uint32(1)) * _POLYNOMIAL
    low = high.copy()
    for _ in range(2):
        low = (low >> np.uint32(8)) ^ high[(low & np.uint32(0xFF)) << np.uint32(8)]
    return low, high
