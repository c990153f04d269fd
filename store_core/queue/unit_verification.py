"""Units of queues compared with the records of the log: which are torn, which are proved whole.

A loss of power leaves units half written. To prove them whole takes as few properties of the
records as will do: properties cost more than all else of a record, and of a unit only the tags code
comes from them. It ends the unit, and what a crash takes from a unit is all before some place, or
all after it, which is zeros then. So if place and size are right, and the last byte of the code is
not zero, nothing was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.layout.consume_queue import EXT_ADDRESS_BASE
from store_core.queue.consume_queue_ext import is_ext_address

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.consume_queue_ext import ExtUnits
    from store_core.queue.dispatch_request import DispatchRequests

    Int64s = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Units = npt.NDArray[np.void]

_BATCH_FIELDS = (
    "message_size", "tags_code", "store_timestamp", "base_queue_offset", "batch_size",
)  # fmt: skip
_LAST_BYTE = 0xFF


def first_torn_unit(stored: Units, rows: DispatchRequests) -> int | None:
    """Return the first unit that lost bytes, or that none of the records has made.

    Units whose tags code is another one are left: it may be the time of delivery by another table
    of delays. What was lost is zeros.

    Parameters
    ----------
    stored
        Units in log order, in the layout's byte order; the first ones of a queue whose records
        begin at or after that of the first row. No more than there are rows.
    rows
        What the log says, all of one queue, in log order; at least one.
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
    """Do the same for a queue whose tags codes name extension units.

    A unit is torn, too, where the extension unit is not there, is that of another record, or comes
    before that of the unit before.
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
    """Do the same for units of a batch queue."""
    at, bad = _match(stored, rows)
    expected = stored.copy()
    for name in _BATCH_FIELDS:
        expected[name] = getattr(rows, name)[at]
    return _first(bad | _lost_bytes(stored, expected))


def _match(stored: Units, rows: DispatchRequests) -> tuple[npt.NDArray[np.intp], Mask]:
    """Return the row of each unit, and which have none although their place was looked at.

    Nor has a unit that refers to a place after that of a later one: it is no record's, and as the
    last unit it would make all records before that place pass for dispatched.
    """
    start, known = stored["commit_log_offset"].astype(np.int64), rows.commit_log_offset
    at = np.searchsorted(known, start)
    at[at == len(known)] = 0
    bad: Mask = (known[at] != start) & (start <= known[-1])
    of_records = np.where(bad, np.iinfo(np.int64).max, start)
    bad |= start > np.minimum.accumulate(of_records[::-1])[::-1]
    return at, bad


def _lost_bytes(stored: Units, expected: Units) -> Mask:
    """Return which units differ from what is expected by zeros only."""
    # Expected are the bytes 1 2. Found 1 2: nothing differs. Found 1 0: what differs is zero, lost.
    # Found 9 2: what differs is another byte, so it is another unit, and not one that lost some.
    found = stored.view(np.uint8).reshape(len(stored), stored.itemsize)
    wanted = expected.view(np.uint8).reshape(found.shape)
    different = found != wanted
    lost: Mask = different.any(axis=1) & ~(different & (found != 0)).any(axis=1)
    return lost


def _first(torn: Mask) -> int | None:
    return int(np.argmax(torn)) if torn.any() else None
