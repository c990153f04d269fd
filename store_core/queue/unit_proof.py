"""Which queues hold the units of some records, told with as few of their properties as will do.

Properties cost more than all else of a record, and of a unit only the tags code comes from them.
It ends the unit, and what a crash takes from a unit is all before some place, or all behind it,
which is zeros then. So if place and size are right, and the last byte of the code is not zero,
nothing was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.layout.consume_queue import CQ_UNIT
from store_core.queue.torn_units import first_torn_unit

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.consume_queue_writer import ConsumeQueueWriter
    from store_core.queue.dispatch_request import DispatchRequests

    Int64s = npt.NDArray[np.int64]
    Units = npt.NDArray[np.void]

_LAST_BYTE = 0xFF


def unproved_records(
    queues: ConsumeQueueStore,
    outline: DispatchRequests,
    decode: Callable[[Int64s], DispatchRequests],
) -> Int64s:
    """Return where the records start of which a queue lacks some, or may hold torn units.

    Of a queue it is all of its records or none.

    Parameters
    ----------
    queues
        The queues, recovered, without extension units; no record goes to several of them.
    outline
        See `DispatchDecoder.outline`; in log order.
    decode
        Returns the requests of records, whole, given where they start (ascending).
    """
    found: list[Int64s] = [np.empty(0, np.int64)]
    doubtful: list[tuple[Int64s, Units]] = []
    for key, rows in queues.by_queue(outline):
        units = _units_of(queues.find_simple(*key), rows)
        if units is None:
            found.append(rows.commit_log_offset)
            continue
        units = units[units["tags_code"] & _LAST_BYTE == 0]
        if len(units):
            doubtful.append((rows.commit_log_offset, units))
    if doubtful:
        starts = np.sort(np.concatenate([units["commit_log_offset"] for _, units in doubtful]))
        requests = decode(starts)
        found += [
            records
            for records, units in doubtful
            if first_torn_unit(units.astype(CQ_UNIT.dtype), _rows_of(requests, units)) is not None
        ]
    return np.sort(np.concatenate(found))


def _units_of(queue: ConsumeQueueWriter | None, rows: DispatchRequests) -> Units | None:
    """Return the units of some rows as a native array; None where one is missing or another."""
    starts = rows.commit_log_offset
    if queue is None or int(starts[-1]) >= queue.max_physic_offset:
        return None
    first = queue.end_below(int(starts[0]))
    units = queue.read_units(first, first + len(rows))
    is_same = (
        len(units) == len(rows)
        and (rows.queue_offset == np.arange(first, first + len(rows))).all()
        and (units["commit_log_offset"] == starts).all()
        and (units["message_size"] == rows.message_size).all()
    )
    return units if is_same else None


def _rows_of(requests: DispatchRequests, units: Units) -> DispatchRequests:
    return requests.take(np.searchsorted(requests.commit_log_offset, units["commit_log_offset"]))
