# SPDX-License-Identifier: Apache-2.0
"""Repair and check queues: missing, torn and phantom units, lost queues."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.codec.java_string import is_name
from store_core.config.config_files import is_deleted_topic, load_consumer_offsets, load_topics
from store_core.errors import CorruptRecordError, StoreError, StoreReadError
from store_core.layout import CQ_UNIT, LMQ_PREFIX, PROPERTY_INNER_MULTI_DISPATCH
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap
from store_core.queue.batch_consume_queue_writer import BatchConsumeQueueWriter
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.queue.unit_placement import count_misplaced, first_queue_offset, first_torn_unit
from store_core.recovery.recovery_plan import LogWalk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.commit_log import ReadableLog
    from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueKey
    from store_core.queue.consume_queue_writer import ConsumeQueueWriter
    from store_core.queue.dispatch_request import DispatchRequests

    Int64s = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]
    Units = npt.NDArray[np.void]
    _Sample = tuple[int, int, int, QueueKey]
    """A unit: start and size of its record, its queue offset, its queue."""

_LAST_BYTE = 0xFF  # of a tags code
logger = logging.getLogger(__name__)
_LAST_UNITS = 1 << 16
_MOST_BETWEEN = 64 << 20
_MULTI = PROPERTY_INNER_MULTI_DISPATCH.encode()


class PutAgain(NamedTuple):
    """Number of units repaired and added, and the queues whose units moved."""

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
    """Add the units that queues lack, and rewrite those torn by a power failure.

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
    """Return about how many rows `ConsumeQueueStore.put` would add."""
    count = 0
    for key, rows in queues.by_queue(requests):
        queue = queues.find(*key)
        last = queue.max_physic_offset if queue is not None else -1
        count += int(np.count_nonzero(rows.commit_log_offset + rows.message_size > last))
    return count


def own_units(queues: ConsumeQueueStore, requests: DispatchRequests) -> npt.NDArray[np.bool_]:
    """Return which rows have a unit, with their place and size, at their own queue offset."""
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
    """End queues, in memory, before units that are not of a record of theirs; return those queues.

    Cutting a log without erasing leaves such units; once the log has grown past the cut, RocketMQ
    takes them for messages, and skips the units of new ones. Units that point past the log's files
    are cut, too: with such a unit, every record of the queue passes for dispatched. Units that
    point before the first file are not checked.

    On the disk they stay until `put_again` and `ConsumeQueueStore.truncate_dirty` replace or erase
    them: a recovery after a crash in between must see the damage.
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
    """Return whether units are at other queue offsets than their records because some are missing.

    A single such unit at the end is contradicted by those before it: none is missing between them.
    """
    return moved > 1 or 0 < moved == units


def _drop_expired(queue: ConsumeQueueWriter, rows: DispatchRequests, min_phy_offset: int) -> None:
    """Cut all units of a queue if all have expired and units after them are missing.

    The queue then begins with the first row, at that row's queue offset. RocketMQ appends to the
    old units: all later messages get other queue offsets than their records have.
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
    """Return the simple queues whose last unit does not point at a record."""
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
    """Return the starts of the records of queues that lack units or may have torn ones.

    All records of such a queue are included.

    Parameters
    ----------
    decode
        Returns the complete requests of records, given their starts (ascending).
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
    """Return the units of some rows as a native array; None if one is missing or differs."""
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


def queues_not_of_log(
    queues: ConsumeQueueStore, log: ReadableLog, end_offset: int
) -> tuple[QueueKey, ...]:
    """Return the queues whose units evidently do not belong to the records of the log.

    Checks that the last units are in order, that the first and last unit of each file belong to a
    record of their topic, queue and queue offset (this detects swapped files and moved units), and
    that no queue begins late in a log that still has its first record. ``check`` checks all units.
    Batch queues are left out.
    """
    wrong: set[QueueKey] = set()
    samples: list[_Sample] = []
    for key in queues.queues():
        queue = queues.find_simple(*key)
        if queue is None:
            continue
        try:
            if queue.min_offset > 0 == log.min_offset:
                wrong.add(key)
            if not _is_ordered(
                queue.stored_units(queue.max_offset - _LAST_UNITS, queue.max_offset)
            ):
                wrong.add(key)
            samples += [(int(unit[0]), int(unit[1]), at, key) for at, unit in queue.border_units()]
        except (CorruptRecordError, StoreReadError):
            wrong.add(key)
    for sample in _misplaced(samples, log, end_offset):
        if not any(_is_belied(log, end_offset, *pair) for pair in _pairs(queues, sample)):
            wrong.add(sample[3])
    return tuple(key for key in queues.queues() if key in wrong)


def queues_short_of_log(
    queues: ConsumeQueueStore,
    log: ReadableLog,
    bounds: tuple[int, int],
    topics: Collection[str] | None,
) -> tuple[QueueKey, ...]:
    """Return the queues that have no files, or end before records of theirs, in part of the log.

    A queue whose units go on later in the log is left out: its topic was created again.
    """
    start, end = bounds
    known = set(queues.queues())
    lost: set[QueueKey] = set()
    decoder = DispatchDecoder(())
    for frames in LogWalk(log, start, check_crc=False).frames():
        stop = int(np.searchsorted(frames.column("commit_log_offset"), end))
        rows = decoder.outline(frames).take(slice(stop)).queued()
        for topic, number, held in rows.by_queue():
            queue = queues.find_simple(topic, number)
            if (topic, number) not in known or (queue is not None and _ends_before(queue, held)):
                lost.add((topic, number))
        if stop < len(frames):
            break
    return tuple(sorted(key for key in lost if not is_deleted_topic(key[0], topics)))


def lost_queues(
    queues: ConsumeQueueStore, log: ReadableLog, bounds: tuple[int, int]
) -> tuple[QueueKey, ...]:
    """Return the queues that evidently lost units since the store was stopped cleanly.

    They have no files, or end before records of theirs in a part of the log that was dispatched.
    If the log still has its first record, they may also begin late, or have no files although a
    group has consumed their messages. A queue that has records only before that part, and that no
    group has consumed, is missed; ``check`` checks all records.
    """
    topics, consumed = None, set()
    with suppress(StoreError):  # ``check`` reports what is wrong with the files
        topics = load_topics(queues.directory)
        consumed = _consumed(queues.directory)
    lost = set(queues_short_of_log(queues, log, bounds, topics))
    if log.min_offset == 0:
        lost.update(key for key in consumed if queues.find(*key) is None)
        simple = ((key, queues.find_simple(*key)) for key in queues.queues())
        lost.update(key for key, queue in simple if queue is not None and queue.min_offset > 0)
    return tuple(sorted(key for key in lost if not is_deleted_topic(key[0], topics)))


def _consumed(directory: StoreDirectory) -> set[QueueKey]:
    """Return the queues from which groups have consumed messages."""
    offsets = load_consumer_offsets(directory)
    return {
        (topic, queue_id)
        for (_, topic), queues in offsets.items()
        for queue_id, offset in queues.items()
        if offset > 0
    }


def _ends_before(queue: ConsumeQueueWriter, rows: DispatchRequests) -> bool:
    """Return whether a queue ends before the last row, by queue offset and by place in the log."""
    return queue.max_physic_offset <= int(rows.commit_log_offset[-1]) and queue.max_offset <= int(
        rows.queue_offset[-1]
    )


def _is_ordered(units: Units) -> bool:
    start = units["commit_log_offset"]
    stop = start + units["message_size"]
    return bool((start >= 0).all() and (stop > start).all() and (start[1:] >= stop[:-1]).all())


def _pairs(queues: ConsumeQueueStore, sample: _Sample) -> list[tuple[_Sample, _Sample]]:
    """Return two pairs: a unit with the one before it, and with the one after it."""
    _, _, at, key = sample
    queue = queues.find_simple(*key)
    if queue is None:
        return []
    first = max(at - 1, queue.min_offset)
    units = queue.stored_units(first, at + 2).tolist()
    placed = [(int(unit[0]), int(unit[1]), first + row, key) for row, unit in enumerate(units)]
    return list(zip(placed, placed[1:]))


def _is_belied(log: ReadableLog, end_offset: int, unit: _Sample, after: _Sample) -> bool:
    """Return whether two units belong to consecutive records of their queue, one well placed.

    Then the other record's queue offset was damaged: no CRC covers it.
    """
    stop = after[0] + after[1]
    if not 0 <= unit[0] < stop <= min(end_offset, unit[0] + _MOST_BETWEEN):
        return False
    if len(_misplaced([unit, after], log, end_offset)) == 2:  # noqa: PLR2004 (both)
        return False
    decoder = DispatchDecoder(())
    found: list[tuple[int, int]] = []
    for frames in scan_frames(log, unit[0], stop, end_offset, on_gap=skip_gap):
        for topic, number, rows in decoder.outline(frames).queued().by_queue():
            if (topic, number) == unit[3]:
                found += zip(rows.commit_log_offset.tolist(), rows.message_size.tolist())
    return found == [unit[:2], after[:2]]


def _misplaced(samples: list[_Sample], log: ReadableLog, end_offset: int) -> list[_Sample]:
    """Return the samples that do not belong to a record of their queue and queue offset."""
    samples = sorted(samples)
    starts, size = np.array([sample[0] for sample in samples], np.int64), log.segments.file_size
    wrong = [sample for sample in samples if sample[0] + sample[1] > end_offset]
    for segment in log.segments:
        low, high = np.searchsorted(starts, (segment.from_offset, segment.from_offset + size))
        if low == high:
            continue
        frames = log.frames_at(
            segment, starts[low:high], min(end_offset, segment.from_offset + size)
        )
        for row, sample in enumerate(samples[low:high]):
            _, length, queue_offset, key = sample
            if not _is_unit_of(frames, row, key, length, queue_offset):
                wrong.append(sample)
    return wrong


def _is_unit_of(
    frames: RecordFrames, row: int, key: QueueKey, size: int, queue_offset: int
) -> bool:
    if not frames.ok[row] or int(frames.column("total_size")[row]) != size:
        return False
    start = int(frames.topic_start[row])
    topic = frames.data[start : start + int(frames.topic_length[row])].tobytes()
    if is_name(topic, key[0]) and int(frames.column("queue_id")[row]) == key[1]:
        return int(frames.column("queue_offset")[row]) == queue_offset
    at = int(frames.position[row])
    return key[0].startswith(LMQ_PREFIX) or _MULTI in frames.data[at : at + size].tobytes()
