"""Which bytes of the log no unit of any queue covers: what a lost queue had lies there.

Every dispatched record has a unit in one queue at least, so the units of all queues together cover
the log but for the blank records that close its segments, and records that are in no queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError
from store_core.queue.readable_queue import proved_batch_queue

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.scan.splits import Range
    from store_core.store_snapshot import StoreSnapshot

    Int64s = npt.NDArray[np.int64]

_MOST_UNITS = 1 << 20
_MOST_QUEUES = 1 << 10
"""More is not read for the proof: 20 MB, and files of so many queues."""
_MOST_REMOTE_QUEUES = 64
"""Of a remote store: each takes some twenty requests."""


class UncountedError(Exception):
    """There is too much to be read for the proof, or it is damaged."""


class OverlapError(Exception):
    """Two units claim the same bytes of the log: one of them is damaged."""


def uncovered(
    snapshot: StoreSnapshot, start: int, stop: int, most_units: int | None = None
) -> list[Range]:
    """Return the ranges of ``[start, stop)`` of the log that no unit covers, ascending.

    Parameters
    ----------
    snapshot
        The store; its queues hold what was dispatched before ``stop``.
    start, stop
        Offsets of the log at which records start.
    most_units
        More are not read; a million, if None.

    Raises
    ------
    UncountedError
        It is not known.
    OverlapError
        Units claim the same bytes, and are not of one record.
    """
    if start >= stop:
        return []
    most = _MOST_QUEUES if snapshot.directory.is_local else _MOST_REMOTE_QUEUES
    if len(snapshot.queue_paths) + len(snapshot.batch_queue_paths) > most:
        raise UncountedError
    try:
        begins, ends = _units(snapshot, start, stop, most_units or _MOST_UNITS)
    except (CorruptRecordError, StoreFormatError) as err:
        raise UncountedError from err
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    reached = np.maximum.accumulate(np.append(start, ends))
    inside = begins < reached[:-1]
    inside[1:] &= (begins[1:] != begins[:-1]) | (
        ends[1:] != ends[:-1]
    )  # light queues share records
    if inside.any():
        raise OverlapError(int(begins[np.argmax(inside)]))
    begins = np.append(begins, stop)
    rows = np.flatnonzero(begins > reached + snapshot.log.header_bytes(reached))
    holes = zip(reached[rows].tolist(), begins[rows].tolist())
    return [(low, high) for low, high in holes if not _closes_segment(snapshot, low, high)]


def _closes_segment(snapshot: StoreSnapshot, start: int, stop: int) -> bool:
    """Return whether a blank record fills a range that reaches to the end of its segment."""
    segment = snapshot.log.segments.find(start)
    if segment is None:
        return False
    end = segment.from_offset + snapshot.log.segments.file_size
    following = snapshot.log.segments.find(end)
    if stop not in {end, end + (following.header_bytes if following else 0)}:
        return False
    records = snapshot.log.records(segment, end)
    return records.blank_bytes(start - segment.from_offset) == end - start


def _units(snapshot: StoreSnapshot, start: int, stop: int, left: int) -> tuple[Int64s, Int64s]:
    """Return where the records of all units begin and end that begin in a range."""
    begins, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for topic, queue_id in snapshot.queues_ahead(snapshot.queue_paths, units=True):
        queue, held = snapshot.consume_queue(topic, queue_id), snapshot.queue_range(topic, queue_id)
        if queue is None or held.max_offset == 0:
            continue
        low = max(queue.correct_min_offset(start, held.max_offset), held.min_offset)
        high = queue.correct_min_offset(stop, held.max_offset)
        left -= max(high - low, 0)
        if left < 0:
            raise UncountedError
        units = queue.exact_units(low, max(high, low))
        begins.append(units["commit_log_offset"].astype(np.int64))
        sizes.append(units["message_size"].astype(np.int64))
    for topic, queue_id in snapshot.batch_queue_paths:
        batch = snapshot.batch_consume_queue(topic, queue_id)
        if batch is not None:
            units = proved_batch_queue(batch, snapshot.log, snapshot.end_offset).units
            begins.append(units["commit_log_offset"].astype(np.int64))
            sizes.append(units["message_size"].astype(np.int64))
    begin, size = np.concatenate(begins), np.concatenate(sizes)
    inside = (begin >= start) & (begin < stop) & (size > 0)
    return begin[inside], begin[inside] + size[inside]
