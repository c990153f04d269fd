# SPDX-License-Identifier: Apache-2.0
"""Read the units of consume queues and batch consume queues that belong to the snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.scan.store_versions import VANISHED_ATTEMPTS
from store_core.errors import FileVanishedError
from store_core.queue.batch_consume_queue import NATIVE_BATCH_CQ_UNIT, max_queue_offset
from store_core.queue.readable_queue import proved_batch_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.metadata.selection import SelectedQueue
    from store_core.queue.queue_database import StoredUnits
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Int64s = npt.NDArray[np.int64]
    Units = npt.NDArray[np.void]

_CHUNK_UNITS = 1 << 18
"""Units of one read: 5 MB of a file."""


class UnitChunk(NamedTuple):
    """Units of one queue in order; in a batch queue, ``queue_offset`` is the first of a unit."""

    queue_offset: Int64s
    units: Units


class BatchUnits(NamedTuple):
    """Units of a batch queue whose records are in the log, and the end of the queue.

    ``expired`` counts the earlier units, whose records are gone.
    """

    units: Units
    max_offset: int
    expired: int


def unit_chunks(snapshot: StoreSnapshot, key: SelectedQueue) -> Iterator[UnitChunk]:
    """Yield all units of a queue, with the columns of ``CQ_UNIT`` (batch: ``BATCH_CQ_UNIT``)."""
    if key.is_batch:
        units = read_batch_queue(snapshot, key).units
        if len(units):
            yield UnitChunk(units["base_queue_offset"], units)
        return
    queue = snapshot.consume_queue(key.topic, key.queue_id)
    held = snapshot.queue_range(key.topic, key.queue_id)
    at, vanished = held.min_offset, 0
    while queue is not None and at < held.max_offset:
        stop = min(at + _CHUNK_UNITS, held.max_offset)
        try:
            units = queue.exact_units(at, stop)
        except FileVanishedError:  # its units have expired
            vanished += 1
            if vanished == VANISHED_ATTEMPTS:
                raise
            queue, at = _present(snapshot, key, at)
            continue
        vanished = 0
        yield UnitChunk(at + np.arange(len(units), dtype=np.int64), units)
        at += len(units)


def _present(
    snapshot: StoreSnapshot, key: SelectedQueue, queue_offset: int
) -> tuple[StoredUnits | None, int]:
    """List a queue's files again; return the queue and the offset that follows deleted files."""
    queue = snapshot.consume_queue(key.topic, key.queue_id)
    starts = queue.file_boundaries() if queue is not None else ()
    return (queue, max(starts[0], queue_offset)) if starts else (None, queue_offset)


def read_batch_queue(snapshot: StoreSnapshot, key: SelectedQueue) -> BatchUnits:
    """Return the valid units of a batch queue; none if it has no directory."""
    place = (key.topic, key.queue_id)
    found = snapshot.batch_units(*place)
    if found is None:
        return BatchUnits(np.empty(0, NATIVE_BATCH_CQ_UNIT), 0, 0)
    units = proved_batch_units(found, place, snapshot.log, snapshot.end_offset)
    kept = np.flatnonzero(units["commit_log_offset"] >= max(snapshot.min_phy_offset, 0))
    expired = int(kept[0]) if len(kept) else len(units)
    return BatchUnits(units[expired:], max_queue_offset(units), expired)
