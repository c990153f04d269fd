"""Find records in bytes of the commit log: walk from size to size, or search after damage."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.record_frames import RecordFrames
from store_core.layout.message import (
    BLANK_MAGIC_CODE,
    BLANK_RECORD_BYTES,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECORD_PREFIX,
)

if TYPE_CHECKING:
    import numpy.typing as npt

_MAGIC_PREFIX = MESSAGE_MAGIC_CODE.to_bytes(4, "big", signed=True)[:3]
_MAGIC_AT = RECORD_PREFIX.at("magic_code")
_SEARCH_BYTES = 1 << 20


class Walk(NamedTuple):
    """Where records start, and where and why the walk stopped.

    ``stop`` is the position after the last record. ``failed`` says that no record, and no blank
    record either, lies there; ``blank`` that a blank record does.
    """

    starts: npt.NDArray[np.int64]
    stop: int
    failed: bool
    blank: bool


def walk_records(
    data: npt.NDArray[np.uint8], start: int, stop: int, max_rows: int, max_bytes: int
) -> Walk:
    """Walk from record to record through their total sizes.

    One tight loop of about five million records a second. Only size and magic code are looked at;
    ``RecordFrames`` does the checks for all rows together.

    Parameters
    ----------
    data
        Bytes of one segment from some position on.
    start
        A record's first byte.
    stop
        Records that start here or later are not walked; records may end later.
    max_rows, max_bytes
        The walk ends after this many records, or with the record that reaches this many bytes.
    """
    view = memoryview(data)
    unpack = RECORD_PREFIX.struct.unpack_from
    end = len(data)
    bytes_stop = min(stop, end - BLANK_RECORD_BYTES + 1, start + max_bytes)
    starts: list[int] = []
    append = starts.append
    at = start
    failed = blank = False
    v1, v2 = MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2
    for _ in range(max_rows):
        if at >= bytes_stop:
            break
        size, magic = unpack(view, at)
        if (magic != v1 and magic != v2) or size < MIN_RECORD_BYTES or at + size > end:
            blank = magic == BLANK_MAGIC_CODE
            failed = not blank
            break
        append(at)
        at += size
    if not blank and at < stop and at > end - BLANK_RECORD_BYTES and at < end:
        failed = True  # fewer than eight bytes are left, so nothing can start here
    return Walk(np.array(starts, np.int64), at, failed, blank)


def find_record(
    data: npt.NDArray[np.uint8], base_offset: int, start: int, stop: int | None = None
) -> int:
    """Return the first position in ``[start, stop)`` at which a whole valid record starts, or -1.

    Valid: a message's magic code, its own physical offset equal to ``base_offset`` plus its
    position, and lengths that close. This is how reading resumes after damage and how a split
    that starts anywhere finds its first record.
    """
    last = len(data) - MIN_RECORD_BYTES
    if stop is not None:
        last = min(last, stop - 1)
    chunk_start = start
    while chunk_start <= last:
        chunk_end = min(chunk_start + _SEARCH_BYTES, last + 1)
        chunk = data[chunk_start + _MAGIC_AT : chunk_end + _MAGIC_AT + len(_MAGIC_PREFIX) - 1]
        found = _find_in_chunk(data, base_offset, chunk.tobytes(), chunk_start)
        if found >= 0:
            return found
        chunk_start = chunk_end
    return -1


def _find_in_chunk(
    data: npt.NDArray[np.uint8], base_offset: int, chunk: bytes, chunk_start: int
) -> int:
    hit = chunk.find(_MAGIC_PREFIX)
    while hit >= 0:
        if is_record(data, base_offset, chunk_start + hit):
            return chunk_start + hit
        hit = chunk.find(_MAGIC_PREFIX, hit + 1)
    return -1


def is_record(data: npt.NDArray[np.uint8], base_offset: int, at: int) -> bool:
    """Tell whether a whole valid record starts at ``at`` (frame and own offset; not the CRC)."""
    if at < 0 or at + MIN_RECORD_BYTES > len(data):
        return False
    size, magic = RECORD_PREFIX.struct.unpack_from(data, at)
    if magic not in {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2}:
        return False
    if size < MIN_RECORD_BYTES or at + size > len(data):
        return False
    return bool(RecordFrames(data, base_offset, np.array([at], np.int64)).ok[0])
