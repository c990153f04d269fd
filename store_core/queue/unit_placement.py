"""Which records get a unit in a consume queue, and at which queue offset.

Source: RocketMQ ``ConsumeQueue.putMessagePositionInfo`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.layout.consume_queue import CQ_UNIT

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.dispatch_request import DispatchRequests

    Int64s = npt.NDArray[np.int64]

_MAX_QUEUE_OFFSET = 1 << 58  # byte positions stay within 63 bits, 20 bytes a unit
_FEW_ROWS = 16  # up to here numbers one by one take less time than columns


class Appended(NamedTuple):
    """What became of the rows of a call.

    Attributes
    ----------
    units
        Units written.
    known
        Rows that were skipped because their record is in the queue.
    repeated
        Rows that were skipped because their queue offset is taken (or is none).
    moved
        Of ``units`` those that do not stand at their queue offset: units before them are missing.
    """

    units: int = 0
    known: int = 0
    repeated: int = 0
    moved: int = 0


class Placement(NamedTuple):
    """Rows that get a unit each, at the queue offsets from ``start`` on; and the counts of all."""

    rows: DispatchRequests
    start: int
    counts: Appended


def place_units(
    requests: DispatchRequests, next_queue_offset: int | None, max_physic_offset: int
) -> Placement:
    """Return which rows get a unit, in the order of the log.

    Skipped are rows whose record ends at or before ``max_physic_offset``, and rows whose queue
    offset is taken. A row whose queue offset lies ahead gets the next unit all the same.

    Parameters
    ----------
    requests
        Records of one queue.
    next_queue_offset
        End of the units that are there; None: the queue has none, and begins with the first row.
    max_physic_offset
        End of the last record that is in the queue; -1 for none.
    """
    if _continues(requests, next_queue_offset, max_physic_offset):
        return Placement(requests, next_queue_offset or 0, Appended(len(requests)))
    end = requests.commit_log_offset + requests.message_size
    before = np.maximum.accumulate(np.concatenate([[max_physic_offset], end]))[:-1]
    fresh = end > before
    rows = requests if fresh.all() else requests.take(fresh)
    known = len(requests) - len(rows)
    start = _start(rows.queue_offset, next_queue_offset)
    accepted = _accepted(rows.queue_offset, start)
    placed = rows if accepted.all() else rows.take(accepted)
    moved = int((placed.queue_offset != start + np.arange(len(placed))).sum())
    counts = Appended(len(placed), known, len(rows) - len(placed), moved)
    return Placement(placed, start, counts)


def few_units(
    requests: DispatchRequests, next_queue_offset: int, max_physic_offset: int
) -> bytes | None:
    """Return the units of a few rows, as they are stored, if these are what comes next.

    None: they are many, or not: then `place_units` says which get a unit. Parameters as there.
    """
    if not 0 < len(requests) <= _FEW_ROWS or next_queue_offset > _MAX_QUEUE_OFFSET - _FEW_ROWS:
        return None
    units, end = [], max_physic_offset
    columns = (requests.commit_log_offset, requests.message_size, requests.tags_code)
    queue_offsets = requests.queue_offset.tolist()
    if queue_offsets != list(range(next_queue_offset, next_queue_offset + len(queue_offsets))):
        return None
    for start, size, tags_code in zip(*(column.tolist() for column in columns)):
        if size <= 0 or start < end:
            return None
        units.append(CQ_UNIT.struct.pack(start, size, tags_code))
        end = start + size
    return b"".join(units)


def _continues(requests: DispatchRequests, start: int | None, max_physic_offset: int) -> bool:
    """Return whether the rows are what comes next, without a gap: as nearly always."""
    stop = (start or 0) + len(requests)
    begin, size = requests.commit_log_offset, requests.message_size
    if start is None or len(requests) == 0 or stop > _MAX_QUEUE_OFFSET or size.min() <= 0:
        return False
    if (requests.queue_offset != np.arange(start, stop)).any():
        return False
    return bool((begin >= np.append(max_physic_offset, (begin + size)[:-1])).all())


def _start(queue_offset: Int64s, next_queue_offset: int | None) -> int:
    if next_queue_offset is not None:
        return next_queue_offset
    usable = (queue_offset >= 0) & (queue_offset <= _MAX_QUEUE_OFFSET)
    return int(queue_offset[np.argmax(usable)]) if usable.any() else _MAX_QUEUE_OFFSET


def _accepted(queue_offset: Int64s, start: int) -> npt.NDArray[np.bool_]:
    """Return which rows get a unit when the next one is ``start``.

    Queue offset 0 is never taken for a repetition: so a topic that was deleted begins anew.
    """
    usable: npt.NDArray[np.bool_] = queue_offset >= start + np.arange(len(queue_offset))
    usable |= queue_offset == 0
    usable &= queue_offset <= _MAX_QUEUE_OFFSET
    if usable.all():
        return usable
    at = start
    for row, wanted in enumerate(queue_offset.tolist()):  # each row depends on those before it
        usable[row] = wanted == 0 or at <= wanted <= _MAX_QUEUE_OFFSET
        at += int(usable[row])
    return usable
