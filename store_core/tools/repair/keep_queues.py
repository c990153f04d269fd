# SPDX-License-Identifier: Apache-2.0
"""Keep queues without records in the log: their end is recorded nowhere else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.files.byte_source import open_to_write
from store_core.files.file_writing import erase, flush_directory
from store_core.files.store_directory import StoreDirectory
from store_core.layout import BATCH_CONSUME_QUEUE_DIR, BATCH_CQ_UNIT, CONSUME_QUEUE_DIR, CQ_UNIT
from store_core.queue.batch_consume_queue import min_queue_offset, read_batch_units
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import list_consume_queues
from store_core.queue.readable_queue import agreed_times

if TYPE_CHECKING:
    from store_core.files.segment_list import Segment
    from store_core.snapshot.store_snapshot import StoreSnapshot

_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)


class _End(NamedTuple):
    """The last file of a queue that has units, and the position at which they end."""

    segment: Segment
    position: int


def keep_queues_without_records(view: StoreSnapshot, new_root: Path) -> int:
    """Copy the last file of each queue whose records have all expired; return how many.

    Such a queue cannot be rebuilt from the log: the next message would recreate it from queue
    offset 0, and consumers would wait at their old offsets. Units after the proved ones become
    zeros. Queues that are below ``new_root`` already, and damaged ones, are skipped.
    """
    kept = 0
    simple = {key: _simple_end for key in view.queue_paths}
    batch = {key: _batch_end for key in view.batch_queue_paths}
    for root_name, finders in ((CONSUME_QUEUE_DIR, simple), (BATCH_CONSUME_QUEUE_DIR, batch)):
        for (topic, queue_id), find in finders.items():
            target = new_root / root_name / topic / str(queue_id)
            if target.is_dir():
                continue
            try:
                end = find(view, topic, queue_id)
            except _DAMAGED:
                continue
            if end is not None:
                _copy(end, target, new_root)
                kept += 1
    return kept


def _simple_end(view: StoreSnapshot, topic: str, queue_id: int) -> _End | None:
    queue = view.consume_queue(topic, queue_id)
    held = view.queue_range(topic, queue_id)
    if not isinstance(queue, ConsumeQueue):  # it is in a database
        return None
    if held.max_offset == 0 or held.min_offset != held.max_offset:
        return None
    stop = held.max_offset * CQ_UNIT.size
    segment = queue.segments.find(stop - 1)
    return None if segment is None else _End(segment, stop - segment.from_offset)


def _batch_end(view: StoreSnapshot, topic: str, queue_id: int) -> _End | None:
    segments = view.batch_segments(topic, queue_id)
    if segments is None:
        return None
    units, begin = read_batch_units(view.directory, segments), max(view.min_phy_offset, 0)
    expired = units[units["commit_log_offset"] < begin]
    if not len(expired) or min_queue_offset(expired, begin) < 0:
        return None
    stop = segments.min_offset + len(expired) * BATCH_CQ_UNIT.size
    segment = segments.find(stop - 1)
    return None if segment is None else _End(segment, stop - segment.from_offset)


def _copy(end: _End, target: Path, new_root: Path) -> None:
    target.mkdir(parents=True)
    path = target / Path(end.segment.path).name
    shutil.copy2(end.segment.path, path)
    fd = open_to_write(str(path))
    try:
        found = os.fstat(fd)
        if erase(fd, end.position, found.st_size):
            os.utime(fd, ns=(found.st_atime_ns, found.st_mtime_ns))
        os.fsync(fd)
    finally:
        os.close(fd)
    for parent in (target, target.parent, target.parent.parent, new_root):
        flush_directory(str(parent))


def set_queue_file_times(view: StoreSnapshot, new_root: Path) -> None:
    """Set the modification time of each queue file to the store time of its last unit's record.

    Source: ``MappedFileQueue.getMappedFileByTime`` (release 4.9.7) returns the first file modified
    at or after a given time; a broker that dispatches continuously leaves such times. They are
    rounded up to a whole second, as no message of the file may be newer. Files whose last record
    has expired keep their time.
    """
    directory = StoreDirectory(str(new_root))
    for (topic, queue_id), path in list_consume_queues(directory).queues.items():
        queue = ConsumeQueue.open(directory, topic, queue_id, path, None)
        end = queue.end_of_units()
        for segment in queue.segments:
            begin = segment.from_offset // CQ_UNIT.size
            last = min(begin + segment.size // CQ_UNIT.size, end) - 1
            if last < begin:
                continue
            store_time = _time_of(view, queue, last)
            if store_time > 0:
                seconds = -(-store_time // 1000)
                os.utime(segment.path, (seconds, seconds))


def _time_of(view: StoreSnapshot, queue: ConsumeQueue, queue_offset: int) -> int:
    """Return the store time (ms) of a unit's record; 0 if the record is not in the log.

    No checksum covers it, so a time far before those of the two units before it is corrected: a
    file that seems too old would be skipped.
    """
    first = max(queue_offset - 2, queue.first_unit_offset())
    places = queue.read_units(first, queue_offset + 1)["commit_log_offset"].tolist()
    times = [view.store_timestamp_at(place) for place in places]
    if times[-1] is None:
        return 0
    return int(agreed_times(np.array([t for t in times if t is not None], np.int64))[-1])
