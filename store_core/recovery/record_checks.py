"""Full validation of many records at once, as recovery wants it.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize`` (release 5.3.3), which checks neither the
own offset, nor, by default, the CRC over the whole record where there is one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.encoded_records import crc_loop
from store_core.layout.message import CRC32_PROPERTY_BYTES, PROPERTY_CRC32

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]

_MARK = PROPERTY_CRC32.encode() + b"\x01"
_POWERS = 10 ** np.arange(CRC32_PROPERTY_BYTES - len(_MARK) - 1, dtype=np.int64)
_ZERO, _NINE = ord("0"), ord("9")


def first_invalid(frames: RecordFrames, *, check_crc: bool = True) -> int:
    """Return the first row that is no record; the number of rows when all are.

    Parameters
    ----------
    frames
        Records that lie one behind the other.
    check_crc
        Look at the CRC of the body, and at that of the whole record where it has one.
    """
    good = len(frames) if frames.ok.all() else int(np.argmin(frames.ok))
    if good == 0 or not check_crc:
        return good
    checked = frames if good == len(frames) else frames.take(np.arange(good))
    return min([good, *crc_failures(checked)])


def crc_failures(frames: RecordFrames) -> dict[int, str]:
    """Return the rows of which a CRC is wrong, and which: of the body, or of the whole record.

    Parameters
    ----------
    frames
        Only rows that are ``ok``.
    """
    found = dict.fromkeys(_property_crc_failures(frames), "the CRC of the whole record is wrong")
    found.update(dict.fromkeys(_body_crc_failures(frames), "the CRC of its body is wrong"))
    return found


def rows_with_property_crc(frames: RecordFrames) -> Int64s:
    """Return the rows that end with a CRC of the whole record (since 5.2.0, if switched on)."""
    return _crc_tails(frames)[0]


def _body_crc_failures(frames: RecordFrames) -> list[int]:
    """Return the rows with another body than their header says; empty bodies are not checked."""
    begin, length = frames.body_start, frames.body_length
    actual = crc_loop(frames.data, begin.tolist(), (begin + length).tolist())
    wrong = (actual != frames.column("body_crc").view(np.uint32)) & (length > 0)
    rows: list[int] = np.flatnonzero(wrong).tolist()
    return rows


def _property_crc_failures(frames: RecordFrames) -> list[int]:
    """Return the rows whose last property is a CRC of the record, and a wrong one."""
    rows, ends, tails = _crc_tails(frames)
    if len(rows) == 0:
        return []
    digits = tails[:, len(_MARK) : -1].astype(np.int64)  # the least significant one first
    is_number = ((digits >= _ZERO) & (digits <= _NINE)).all(axis=1)
    stored = ((digits - _ZERO) * _POWERS).sum(axis=1)
    actual = crc_loop(frames.data, frames.position[rows].tolist(), ends.tolist())
    wrong: list[int] = rows[~is_number | (stored != actual.astype(np.int64))].tolist()
    return wrong


def _crc_tails(frames: RecordFrames) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8]]:
    """Return the rows whose last property is such a CRC, where it begins, and its bytes."""
    rows = np.flatnonzero(frames.properties_length >= CRC32_PROPERTY_BYTES)
    if len(rows) == 0:
        return rows, rows, np.empty((0, CRC32_PROPERTY_BYTES), np.uint8)
    ends = (frames.properties_start + frames.properties_length)[rows] - CRC32_PROPERTY_BYTES
    tails = np.lib.stride_tricks.sliding_window_view(frames.data, CRC32_PROPERTY_BYTES)[ends]
    marked = (tails[:, : len(_MARK)] == np.frombuffer(_MARK, np.uint8)).all(axis=1)
    return rows[marked], ends[marked], tails[marked]
