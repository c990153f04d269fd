"""Queues that are not those of the log, and that recovery does not mend: told by few units."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import CorruptRecordError, StoreReadError
from store_core.layout.message import LMQ_PREFIX, PROPERTY_INNER_MULTI_DISPATCH
from store_core.queue.live_queue import LiveQueue

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.consume_queue_store import ConsumeQueueStore, QueueKey

    Units = npt.NDArray[np.void]

_LAST_UNITS = 1 << 16
_MULTI = PROPERTY_INNER_MULTI_DISPATCH.encode()


def queues_not_of_log(
    queues: ConsumeQueueStore, log: ReadableLog, end_offset: int
) -> tuple[QueueKey, ...]:
    """Return the queues that were found not to hold the records of the log.

    Looked at are the order of the last units, and the first and the last unit of each file, which
    must be that of a record of its topic, queue and queue offset: files that were swapped, or
    whose units were moved, are seen; and that no queue begins late in a log that still has its
    first record. ``check`` looks at all units. Batch queues are left out.

    Parameters
    ----------
    queues
        The queues, recovered.
    log, end_offset
        The log, and where it ends.
    """
    wrong, samples = set(), []
    for key in queues.queues():
        queue = queues.find(*key)
        if not isinstance(queue, LiveQueue):
            continue
        try:
            if queue.min_offset > 0 == log.min_offset:
                wrong.add(key)
            if not _is_ordered(queue.read_units(queue.max_offset - _LAST_UNITS, queue.max_offset)):
                wrong.add(key)
            samples += [(int(unit[0]), int(unit[1]), at, key) for at, unit in queue.border_units()]
        except (CorruptRecordError, StoreReadError):
            wrong.add(key)
    samples.sort()
    wrong.update(_misplaced(samples, log, end_offset))
    return tuple(key for key in queues.queues() if key in wrong)


def _is_ordered(units: Units) -> bool:
    start = units["commit_log_offset"]
    stop = start + units["message_size"]
    return bool((start >= 0).all() and (stop > start).all() and (start[1:] >= stop[:-1]).all())


def _misplaced(
    samples: list[tuple[int, int, int, QueueKey]], log: ReadableLog, end_offset: int
) -> set[QueueKey]:
    starts, size = np.array([sample[0] for sample in samples], np.int64), log.segments.file_size
    wrong = {key for start, length, _, key in samples if start + length > end_offset}
    for segment in log.segments:
        low, high = np.searchsorted(starts, (segment.from_offset, segment.from_offset + size))
        if low == high:
            continue
        frames = log.frames_at(
            segment, starts[low:high], min(end_offset, segment.from_offset + size)
        )
        for row, (_, length, queue_offset, key) in enumerate(samples[low:high]):
            if not _is_unit_of(frames, row, key, length, queue_offset):
                wrong.add(key)
    return wrong


def _is_unit_of(
    frames: RecordFrames, row: int, key: QueueKey, size: int, queue_offset: int
) -> bool:
    if not frames.ok[row] or int(frames.column("total_size")[row]) != size:
        return False
    start = int(frames.topic_start[row])
    topic = frames.data[start : start + int(frames.topic_length[row])].tobytes()
    if topic == os.fsencode(key[0]) and int(frames.column("queue_id")[row]) == key[1]:
        return int(frames.column("queue_offset")[row]) == queue_offset
    at = int(frames.position[row])
    return key[0].startswith(LMQ_PREFIX) or _MULTI in frames.data[at : at + size].tobytes()
