"""Marks that tell whether a log is still the one that was read before: heads of two records.

The first bytes of a record hold its size, CRC, queue, queue offset, physical offset and times; a
digest of them is as good as all of them, and short.
"""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from store_core.log.log_scan import scan_frames, skip_gap

if TYPE_CHECKING:
    from store_core.log.readable_log import ReadableLog

HEAD_BYTES = 64
_DIGEST_BYTES = 8
_NEAR_BYTES = 1 << 20


class LogMark(NamedTuple):
    """A record: where it begins, a digest of its first 64 bytes, and its store time in ms."""

    offset: int
    head: str
    store_timestamp: int


class MarkState(Enum):
    """What became of a record that was marked."""

    HELD = "it is there"
    EXPIRED = "it was deleted with its segment"
    REPLACED = "other bytes are there"
    GONE = "the log ends before it"


def mark_state(log: ReadableLog, mark: LogMark) -> MarkState:
    """Return what became of a marked record."""
    if mark.offset < log.min_offset:
        return MarkState.EXPIRED
    head = _head(log, mark.offset)
    if len(head) < HEAD_BYTES or not any(head):
        return MarkState.GONE
    return MarkState.HELD if _digest(head) == mark.head else MarkState.REPLACED


def mark_at(log: ReadableLog, offset: int, end_offset: int) -> LogMark | None:
    """Return the mark of the record that begins there; None when none does."""
    time_ms = log.store_timestamp_at(offset, end_offset)
    return None if time_ms is None else LogMark(offset, _digest(_head(log, offset)), time_ms)


def mark_before(log: ReadableLog, begin: int, end: int) -> LogMark | None:
    """Return the mark of the last record in ``[begin, end)``; None when there is none.

    Parameters
    ----------
    begin, end
        Offsets at which records begin, or the log.
    """
    near = max(begin, end - _NEAR_BYTES)
    last = _last_record(log, near, end)
    if last < 0 and near > begin:
        last = _last_record(log, max(begin, _segment_before(log, end)), end)
    return mark_at(log, last, end) if last >= 0 else None


def _last_record(log: ReadableLog, begin: int, end: int) -> int:
    last = -1
    for frames in scan_frames(log, begin, end, on_gap=skip_gap):
        last = int(frames.column("commit_log_offset")[-1])
    return last


def _segment_before(log: ReadableLog, end: int) -> int:
    """Return where the last segment begins that holds a record before ``end``."""
    before = [s for s in log.segments if s.from_offset < end]
    held = [s.from_offset for s in before if log.first_store_timestamp(s, end) is not None]
    return max(held, default=0)


def _head(log: ReadableLog, offset: int) -> bytes:
    segment = log.segments.find(offset)
    if segment is None:
        return b""
    return log.source(segment).read_at(offset - segment.from_offset, HEAD_BYTES)


def _digest(head: bytes) -> str:
    return blake2b(head, digest_size=_DIGEST_BYTES).hexdigest()
