"""Queues that are not those of the log, and that recovery does not mend: told by few units."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.java_string import is_name
from store_core.config.config_files import is_deleted_topic, load_consumer_offsets, load_topics
from store_core.errors import CorruptRecordError, StoreError, StoreReadError
from store_core.layout.message import LMQ_PREFIX, PROPERTY_INNER_MULTI_DISPATCH
from store_core.log.log_scan import scan_frames, skip_gap
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.recovery.recovery_plan import LogWalk

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueKey
    from store_core.queue.consume_queue_writer import ConsumeQueueWriter
    from store_core.queue.dispatch_request import DispatchRequests

    Units = npt.NDArray[np.void]
    _Sample = tuple[int, int, int, QueueKey]
    """A unit: start and size of its record, its queue offset, its queue."""

_LAST_UNITS = 1 << 16
_MOST_BETWEEN = 64 << 20
_MULTI = PROPERTY_INNER_MULTI_DISPATCH.encode()


def queues_not_of_log(
    queues: ConsumeQueueStore, log: ReadableLog, end_offset: int
) -> tuple[QueueKey, ...]:
    """Return the queues that were found not to hold the records of the log.

    Looked at are the order of the last units, and the first and the last unit of each file, which
    must be that of a record of its topic, queue and queue offset: files that were swapped, or
    whose units were moved, are seen; and that no queue begins late in a log that still has its
    first record. ``check`` looks at all units. Batch queues are left out.
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
    """Return the queues that have no files, or end before records of theirs: lost at the end.

    A queue whose units go on later in the log is not meant: its topic was created once more.
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
    """Return the queues of a store that was stopped cleanly that evidently lost units since.

    They have no files, or end before records of theirs in a part of the log that was dispatched.
    And where the log still has its first record: they begin late, or have no files although a
    group has consumed messages of theirs. A queue whose records all lie before that part, and that
    no group knows, is not seen: ``check`` looks at all records.
    """
    topics, consumed = None, set()
    with suppress(StoreError):  # ``check`` tells what is wrong with the files
        topics = load_topics(queues.directory)
        consumed = _consumed(queues.directory)
    lost = set(queues_short_of_log(queues, log, bounds, topics))
    if log.min_offset == 0:
        lost.update(key for key in consumed if queues.find(*key) is None)
        simple = ((key, queues.find_simple(*key)) for key in queues.queues())
        lost.update(key for key, queue in simple if queue is not None and queue.min_offset > 0)
    return tuple(sorted(key for key in lost if not is_deleted_topic(key[0], topics)))


def _consumed(directory: StoreDirectory) -> set[QueueKey]:
    """Return the queues of which groups have consumed messages."""
    offsets = load_consumer_offsets(directory)
    return {
        (topic, queue_id)
        for (_, topic), queues in offsets.items()
        for queue_id, offset in queues.items()
        if offset > 0
    }


def _ends_before(queue: ConsumeQueueWriter, rows: DispatchRequests) -> bool:
    """Return whether a queue ends before the last of its records, in number and in the log."""
    return queue.max_physic_offset <= int(rows.commit_log_offset[-1]) and queue.max_offset <= int(
        rows.queue_offset[-1]
    )


def _is_ordered(units: Units) -> bool:
    start = units["commit_log_offset"]
    stop = start + units["message_size"]
    return bool((start >= 0).all() and (stop > start).all() and (start[1:] >= stop[:-1]).all())


def _pairs(queues: ConsumeQueueStore, sample: _Sample) -> list[tuple[_Sample, _Sample]]:
    """Return a unit with the one before it, and with the one after it."""
    _, _, at, key = sample
    queue = queues.find_simple(*key)
    if queue is None:
        return []
    first = max(at - 1, queue.min_offset)
    units = queue.stored_units(first, at + 2).tolist()
    placed = [(int(unit[0]), int(unit[1]), first + row, key) for row, unit in enumerate(units)]
    return list(zip(placed, placed[1:]))


def _is_belied(log: ReadableLog, end_offset: int, unit: _Sample, after: _Sample) -> bool:
    """Return whether two units are those of records that follow each other in their queue.

    And one of them has its queue offset: no CRC covers that of the other, which was damaged.
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
    """Return the samples that are not the units of records of their queue and queue offset."""
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
