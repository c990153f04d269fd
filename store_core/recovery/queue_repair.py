"""Mending of queues that a crash left behind: what they lack, what was torn, what is a phantom."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.layout.consume_queue import CQ_UNIT
from store_core.queue.batch_consume_queue_writer import BatchConsumeQueueWriter
from store_core.queue.unit_placement import count_misplaced, first_queue_offset, first_torn_unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.log.readable_log import ReadableLog
    from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueKey
    from store_core.queue.consume_queue_writer import ConsumeQueueWriter
    from store_core.queue.dispatch_request import DispatchRequests

    Int64s = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Units = npt.NDArray[np.void]

_LAST_BYTE = 0xFF  # of a tags code
logger = logging.getLogger(__name__)


class PutAgain(NamedTuple):
    """What was done to queues."""

    repaired: int
    put: int
    moved: tuple[QueueKey, ...]


def put_again(
    queues: ConsumeQueueStore,
    requests: DispatchRequests,
    min_phy_offset: int,
    before_cut: Callable[[], None],
    *,
    from_zero: bool = False,
) -> PutAgain:
    """Give queues the units that they lack, and make those anew that a power failure tore.

    Raises
    ------
    StoreWriteError
        A file cannot be written. Some queues may have got their units.
    """
    repaired, put, moved = 0, 0, []
    for key, rows in queues.by_queue(requests):
        queue, simple = queues.find(*key), queues.find_simple(*key)
        is_moved = False
        with queues.errors_of(key):
            if simple is not None:
                _drop_expired(simple, rows, min_phy_offset)
            if queue is not None:
                repaired += queue.cut_torn(rows, before_cut)
            if simple is not None:
                is_moved = _is_moved(simple, rows)
        appended = queues.put_queue(key, rows, from_zero=from_zero)
        put += appended.units
        if is_moved or _is_move(appended.moved, appended.units) or appended.unusable:
            moved.append(key)
    return PutAgain(repaired, put, tuple(moved))


def count_missing(queues: ConsumeQueueStore, requests: DispatchRequests) -> int:
    """Return how many rows `ConsumeQueueStore.put` would add, about."""
    count = 0
    for key, rows in queues.by_queue(requests):
        queue = queues.find(*key)
        last = queue.max_physic_offset if queue is not None else -1
        count += int(np.count_nonzero(rows.commit_log_offset + rows.message_size > last))
    return count


def own_units(queues: ConsumeQueueStore, requests: DispatchRequests) -> npt.NDArray[np.bool_]:
    """Return which rows have a unit of their size and place at just the queue offset they say."""
    found = np.zeros(len(requests), bool)
    for row in range(len(requests)):
        at = int(requests.queue_offset[row])
        queue = queues.find_simple(
            requests.topics[requests.topic_code[row]], int(requests.queue_id[row])
        )
        if queue is not None and 0 <= at < queue.max_offset:
            units = queue.stored_units(at, at + 1)
            place = (int(requests.commit_log_offset[row]), int(requests.message_size[row]))
            found[row] = place in units[["commit_log_offset", "message_size"]].tolist()
    return found


def cut_phantoms(queues: ConsumeQueueStore, log: ReadableLog) -> tuple[QueueKey, ...]:
    """Take queues to end before units that point at no record of theirs; return which do.

    Cutting a log without erasing leaves such units; when it has grown over the cut, RocketMQ takes
    them for messages, and skips the units of new ones. And units that point after the log's files:
    beside such a one every record of the queue passes for dispatched. What points before the first
    file is not looked at.

    On the disk they stay until `put_again` and `ConsumeQueueStore.truncate_dirty` go over them: who
    recovers the store after a crash in between has to see what is wrong.
    """
    found = []
    for key, queue in _suspects(queues, log):
        end = queue.proved_end(log)
        if end != queue.max_offset:
            found.append(key)
            queue.truncate(end, on_disk=False)
    for key, batches in _batch_queues(queues):
        kept = batches.proved_units(log)
        if batches.truncate(kept, on_disk=False):
            found.append(key)
    return tuple(found)


def _batch_queues(
    queues: ConsumeQueueStore,
) -> Iterator[tuple[QueueKey, BatchConsumeQueueWriter]]:
    for key in queues.queues():
        queue = queues.find(*key)
        if isinstance(queue, BatchConsumeQueueWriter):
            yield key, queue


def _is_moved(queue: ConsumeQueueWriter, rows: DispatchRequests) -> bool:
    first = queue.end_below(int(rows.commit_log_offset[0]))
    if first >= queue.max_offset:
        return False
    starts = queue.stored_units(first, first + len(rows))["commit_log_offset"]
    at = np.minimum(np.searchsorted(rows.commit_log_offset, starts), len(rows) - 1)
    is_row = rows.commit_log_offset[at] == starts
    wanted = np.where(is_row, rows.queue_offset[at], first + np.arange(len(starts)))
    return _is_move(count_misplaced(wanted, first)[0], len(starts))


def _is_move(moved: int, units: int) -> bool:
    """Return whether units stand elsewhere than their records say because some are missing.

    A last one alone is contradicted by those before it: no record is missing between them.
    """
    return moved > 1 or 0 < moved == units


def _drop_expired(queue: ConsumeQueueWriter, rows: DispatchRequests, min_phy_offset: int) -> None:
    """Cut off all units of a queue that has only expired ones, and lacks some after them.

    The queue begins with the first row then, at that row's queue offset. RocketMQ goes on where
    the units end: all later messages get other queue offsets than they say.
    """
    if (
        0 <= queue.max_physic_offset <= min_phy_offset
        and first_queue_offset(rows) > queue.max_offset
    ):
        logger.warning("queue %d of topic %s lacks units before %d, which expired",
                       queue.queue_id, queue.topic, rows.queue_offset[0])  # fmt: skip
        queue.truncate(0)


def _suspects(
    queues: ConsumeQueueStore, log: ReadableLog
) -> list[tuple[QueueKey, ConsumeQueueWriter]]:
    """Return the queues whose last unit does not point at a record; simple ones only."""
    held = []
    for key in queues.queues():
        queue = queues.find_simple(*key)
        if queue is not None:
            held.append((queue.last_start, key, queue))
    held.sort(key=lambda entry: entry[:2])
    starts = np.array([start for start, _, _ in held], np.int64)
    size, suspects = log.segments.file_size, []
    for segment in log.segments:
        low, high = np.searchsorted(starts, (segment.from_offset, segment.from_offset + size))
        if low == high:
            continue
        frames = log.frames_at(segment, starts[low:high], segment.from_offset + size)
        good = frames.ok.tolist()
        suspects += [held[row][1:] for row in range(low, high) if not good[row - low]]
    log_end = max((s.from_offset + size for s in log.segments), default=0)
    return suspects + [entry[1:] for entry in held if entry[0] >= log_end]


def unproved_records(
    queues: ConsumeQueueStore,
    outline: DispatchRequests,
    decode: Callable[[Int64s], DispatchRequests],
) -> Int64s:
    """Return where the records start of which a queue lacks some, or may hold torn units.

    Of a queue it is all of its records or none.

    Parameters
    ----------
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
