"""CRCs of many records: those of their bodies, and those over whole records.

Apart from the other columns, as it needs no Arrow kernels: planning checks records too, in
processes that start anew for each job, and loading the kernels takes longer than a plan.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``MessageDecoder.createCrc32`` (release
5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.crc32 import crc32_ranges
from store_core.layout.message import CRC32_PROPERTY_BYTES, NAME_VALUE_SEPARATOR, PROPERTY_CRC32

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]

_MARK = np.frombuffer(PROPERTY_CRC32.encode() + bytes([NAME_VALUE_SEPARATOR]), np.uint8)
_POWERS = 10 ** np.arange(CRC32_PROPERTY_BYTES - len(_MARK) - 1, dtype=np.int64)
_ZERO, _NINE = ord("0"), ord("9")


class BadBody(NamedTuple):
    """A record whose frame is good and whose body is not."""

    row: int
    reason: str


class BadRecord(NamedTuple):
    """A record that ends with a CRC of all of it, and a wrong one."""

    row: int
    reason: str


def body_crc_failures(frames: RecordFrames) -> list[BadBody]:
    """Return the rows whose stored body does not have the CRC that its header names.

    An empty body is never checked, as in RocketMQ.
    """
    begin, length = frames.body_start, frames.body_length
    actual = crc32_ranges(frames.data, begin, begin + length)
    expected = frames.column("body_crc").view(np.uint32)
    wrong = np.flatnonzero((actual != expected) & (length > 0))
    return [
        BadBody(row, f"the body's CRC is {actual[row]}, the record says {expected[row]}")
        for row in wrong.tolist()
    ]


def property_crc_failures(frames: RecordFrames) -> list[BadRecord]:
    """Return the rows that end with a CRC of the whole record, and a wrong one.

    The last property, if it has that name; its ten digits stand with the least significant first.
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
            int(rows[at]), f"the record's CRC is {actual[at]}, its property says {stored[at]}"
        )
        for at in wrong.tolist()
    ]


def rows_with_property_crc(frames: RecordFrames) -> Int64s:
    """Return the rows that end with a CRC of the whole record (since 5.2.0, if switched on)."""
    rows = np.flatnonzero(frames.properties_length >= CRC32_PROPERTY_BYTES)
    start = _tail_start(frames)
    for at in range(len(_MARK) - 1, -1, -1):  # few records pass the first
        rows = rows[frames.data[start[rows] + at] == _MARK[at]]
    return rows


def _tail_start(frames: RecordFrames) -> Int64s:
    return frames.properties_start + frames.properties_length - CRC32_PROPERTY_BYTES


# Source: RocketMQ ``CommitLog.checkMessageAndReturnSize`` (release 5.3.3), which checks neither the
# own offset, nor, by default, the CRC over the whole record where there is one.
def first_invalid(frames: RecordFrames, *, check_crc: bool = True) -> int:
    """Return the first row that is no record; the number of rows when all are."""
    good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
    if good == 0 or not check_crc:
        return good
    checked = frames if good == len(frames) else frames.take(np.arange(good))
    return min([good, *crc_failures(checked)])


def crc_failures(frames: RecordFrames) -> dict[int, str]:
    """Return the rows of which a CRC is wrong, and which: of the body, or of the whole record."""
    bad = property_crc_failures(frames)
    found = {failure.row: "the CRC of the whole record is wrong" for failure in bad}
    for failure in body_crc_failures(frames):
        found[failure.row] = "the CRC of its body is wrong"
    return found
