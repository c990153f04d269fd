# SPDX-License-Identifier: Apache-2.0
"""Decides which records get a unit in a consume queue, and at which queue offset.

Source: RocketMQ ``ConsumeQueue.putMessagePositionInfo`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.layout import CQ_UNIT, EXT_ADDRESS_BASE, MIN_RECORD_BYTES
from store_core.queue.consume_queue_ext import is_ext_address

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.consume_queue_ext import ExtUnits
    from store_core.queue.dispatch_request import DispatchRequests

    Int64s = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Units = npt.NDArray[np.void]

_MAX_QUEUE_OFFSET = 1 << 58  # byte positions stay within 63 bits, at 20 bytes a unit
_FEW_ROWS = 16  # up to here, single numbers are faster than columns
_BATCH_FIELDS = (
    "message_size", "tags_code", "store_timestamp", "base_queue_offset", "batch_size",
)  # fmt: skip


class Appended(NamedTuple):
    """Counts of a call's rows, by outcome."""

    units: int = 0
    known: int = 0
    unusable: int = 0
    moved: int = 0
    contradicted: int = 0


class Placement(NamedTuple):
    """Rows that get a unit each, at queue offsets from ``start`` on, and the counts of all rows."""

    rows: DispatchRequests
    start: int
    counts: Appended


def place_units(
    requests: DispatchRequests,
    next_queue_offset: int | None,
    max_physic_offset: int,
    *,
    from_zero: bool = False,
) -> Placement:
    """Return which rows get a unit, in log order.

    Skips rows whose record ends at or before ``max_physic_offset``. All others get a unit, one
    after the other, whatever queue offset their header has: no CRC covers it, and a record that is
    in no queue is lost to consumers. RocketMQ leaves out a record whose queue offset is taken, and
    lets a new queue begin wherever its first record says.

    Parameters
    ----------
    next_queue_offset
        End of the existing units; if None, the queue is empty and begins where its first records
        agree.
    max_physic_offset
        End of the last record that is in the queue; -1 if none is.
    from_zero
        An empty queue begins at 0, as no record is missing from the log before these rows.
    """
    if next_queue_offset is None and from_zero:
        next_queue_offset = 0
    if _continues(requests, next_queue_offset, max_physic_offset):
        return Placement(requests, next_queue_offset or 0, Appended(len(requests)))
    end = requests.commit_log_offset + requests.message_size
    before = np.maximum.accumulate(np.concatenate([[max_physic_offset], end]))[:-1]
    fresh = end > before
    rows = requests if fresh.all() else requests.take(fresh)
    known = len(requests) - len(rows)
    start = first_queue_offset(rows) if next_queue_offset is None else next_queue_offset
    room = max(_MAX_QUEUE_OFFSET - start, 0)
    placed = rows if len(rows) <= room else rows.take(slice(room))
    moved, contradicted = count_misplaced(placed.queue_offset, start)
    counts = Appended(len(placed), known, len(rows) - len(placed), moved, contradicted)
    return Placement(placed, start, counts)


def count_misplaced(queue_offset: Int64s, start: int) -> tuple[int, int]:
    """Return how many units from ``start`` on are moved and contradicted (`Appended`).

    Of the units whose record says another queue offset, those after the last that agrees are moved,
    the others contradicted.
    """
    differs = queue_offset != start + np.arange(len(queue_offset))
    in_place = np.flatnonzero(~differs)
    trusted = int(in_place[-1]) + 1 if len(in_place) else 0
    return len(differs) - trusted, int(np.count_nonzero(differs[:trusted]))


def first_queue_offset(rows: DispatchRequests) -> int:
    """Return the queue offset where a new queue begins, as its first two consistent records give.

    Without such a pair, the smallest that a record gives, as lost records only make those of later
    ones larger; 0 if none is possible. A queue offset cannot exceed the number of records that fit
    into the log before it. A first record with offset 0 is believed, as queues begin that way.
    """
    queue_offset, number = rows.queue_offset, np.arange(len(rows))
    usable = (queue_offset >= number) & (queue_offset <= _MAX_QUEUE_OFFSET)
    usable &= queue_offset <= rows.commit_log_offset // MIN_RECORD_BYTES
    if not usable.any() or queue_offset[0] == 0:
        return 0
    begin = queue_offset - number
    agrees = (begin[1:] == begin[:-1]) & usable[1:] & usable[:-1]
    return int(begin[np.argmax(agrees)]) if agrees.any() else int(begin[usable].min())


def begin_of_life(queue_offset: Int64s) -> int | None:
    """Return the last row where a deleted topic starts again; None if there is none.

    Its queue starts again at 0: records with offsets 0 and 1 follow others. A single 0 among others
    was not stored as such.
    """
    is_begin = (queue_offset[:-1] == 0) & (queue_offset[1:] == 1)
    rows = np.flatnonzero(is_begin)
    return int(rows[-1]) if len(rows) else None


def believed_bases(
    base: Int64s, size: npt.NDArray[np.int16], next_queue_offset: int | None
) -> Int64s:
    """Return the first queue offsets of batches, corrected where neighbours refute them.

    A batch unit has its own queue offset, so batches after a gap stay where they say. Refuted are:
    a batch that does not continue the previous one although the next one fits exactly after both;
    a last batch that begins before the previous one's end, except at 0, where a topic starts again;
    and a first batch that begins below 0 or after the next one.

    Parameters
    ----------
    next_queue_offset
        End of the batches before them; None if there are none and their end is unknown.
    """
    if len(base) == 0:
        return base
    begin = base[0] if next_queue_offset is None else next_queue_offset
    before = np.concatenate([[begin], (base + size)[:-1]])
    if (base == before).all():
        return base
    found, count = base.copy(), size.astype(np.int64)
    is_alone = np.append(base[1:] == (before + count)[:-1], 0 != base[-1] < before[-1])
    is_alone &= base != before
    is_alone[1:] &= ~is_alone[:-1]  # a batch after a refuted one was compared with a wrong place
    found[is_alone] = before[is_alone]
    is_first = next_queue_offset is None and len(base) > 1
    if is_first and not 0 <= base[0] <= base[1] and base[1] >= count[0]:
        found[0] = base[1] - count[0]
    return found


def few_units(
    requests: DispatchRequests, next_queue_offset: int, max_physic_offset: int
) -> bytes | None:
    """Return the units of a few rows, as stored, if the rows directly continue the queue.

    None if they do not, or are many: then `place_units` decides. Parameters as there.
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
    """Return whether the rows directly continue the queue, as they nearly always do."""
    stop = (start or 0) + len(requests)
    begin, size = requests.commit_log_offset, requests.message_size
    if start is None or len(requests) == 0 or stop > _MAX_QUEUE_OFFSET or size.min() <= 0:
        return False
    if (requests.queue_offset != np.arange(start, stop)).any():
        return False
    return bool((begin >= np.append(max_physic_offset, (begin + size)[:-1])).all())


# A power loss leaves units half written. Proving units whole should read as few properties as
# possible: they are the most expensive part of a record, and only a unit's tags code comes from
# them. The code ends the unit, and a crash takes all bytes before some place in a unit, or all
# after it, and leaves zeros. So if place and size are right and the last byte of the code is not
# zero, nothing was lost.
def first_torn_unit(stored: Units, rows: DispatchRequests) -> int | None:
    """Return the first unit that lost bytes or belongs to no record; None if all are whole.

    Lost bytes are zeros. Units with another tags code are accepted: it may be a delivery time by
    another table of delays.

    Parameters
    ----------
    stored
        Units in log order, in the layout's byte order: a queue's first units whose records begin at
        or after that of the first row. No more than there are rows.
    rows
        Requests of the log's records, all of one queue, in log order; at least one.
    """
    at, bad = _match(stored, rows)
    expected = stored.copy()
    expected["tags_code"] = rows.tags_code[at]
    bad |= (stored["message_size"] != rows.message_size[at]) & (
        stored["commit_log_offset"] == rows.commit_log_offset[at]
    )
    return _first(bad | _lost_bytes(stored, expected))


def first_torn_ext_unit(
    stored: Units, rows: DispatchRequests, read: Callable[[Int64s], ExtUnits]
) -> int | None:
    """As `first_torn_unit`, for a queue whose tags codes point to extension units.

    A unit is also torn if its extension unit is missing, is another record's, or does not follow
    the previous unit's.
    """
    at, bad = _match(stored, rows)
    codes = stored["tags_code"].astype(np.int64)
    found = read(codes)
    place = np.where(is_ext_address(codes), codes - EXT_ADDRESS_BASE, -1)
    before = np.maximum.accumulate(np.concatenate([[-1], place]))[:-1]
    good = found.found & (found.store_timestamp == rows.store_timestamp[at]) & (place > before)
    good |= ~is_ext_address(codes)
    good &= found.tags_code == rows.tags_code[at]
    return _first(bad | ~good | (stored["message_size"] != rows.message_size[at]))


def first_torn_batch_unit(stored: Units, rows: DispatchRequests) -> int | None:
    """As `first_torn_unit`, for units of a batch queue."""
    at, bad = _match(stored, rows)
    expected = stored.copy()
    for name in _BATCH_FIELDS:
        expected[name] = getattr(rows, name)[at]
    return _first(bad | _lost_bytes(stored, expected))


def _match(stored: Units, rows: DispatchRequests) -> tuple[npt.NDArray[np.intp], Mask]:
    """Return the row of each unit, and which units have none although rows cover their place.

    A unit that points past a later unit's place has none either: it belongs to no record, and as
    the last unit it would make all records before that place pass for dispatched.
    """
    start, known = stored["commit_log_offset"].astype(np.int64), rows.commit_log_offset
    at = np.searchsorted(known, start)
    at[at == len(known)] = 0
    bad: Mask = (known[at] != start) & (start <= known[-1])
    of_records = np.where(bad, np.iinfo(np.int64).max, start)
    bad |= start > np.minimum.accumulate(of_records[::-1])[::-1]
    return at, bad


def _lost_bytes(stored: Units, expected: Units) -> Mask:
    """Return which units differ from the expected ones, and only in bytes that are zero."""
    # Expected bytes 1 2. Stored 1 2: nothing differs. Stored 1 0: the differing byte is zero, so it
    # was lost. Stored 9 2: the differing byte is not zero, so this is another unit, and no loss.
    found = stored.view(np.uint8).reshape(len(stored), stored.itemsize)
    wanted = expected.view(np.uint8).reshape(found.shape)
    different = found != wanted
    lost: Mask = different.any(axis=1) & ~(different & (found != 0)).any(axis=1)
    return lost


def _first(torn: Mask) -> int | None:
    return int(np.argmax(torn)) if torn.any() else None
