"""Modification times of queue files: 4.x brokers look for a store time by them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from store_core.files.store_directory import StoreDirectory
from store_core.layout.consume_queue import CQ_UNIT
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import list_consume_queues
from store_core.queue.readable_queue import agreed_times

if TYPE_CHECKING:
    from pathlib import Path

    from store_core.store_snapshot import StoreSnapshot


def set_queue_file_times(view: StoreSnapshot, new_root: Path) -> None:
    """Give each queue file below a root the store time of its last unit's record.

    Source: ``MappedFileQueue.getMappedFileByTime`` (release 4.9.7) takes the first file that was
    modified at or after the time asked for; a broker that dispatches as it goes leaves such times.
    They are rounded up to a whole second, as no message of the file may be newer.
    Files whose last record has expired keep theirs.
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
    """Return the store time of a unit's record, not far before those of the two units before it.

    No checksum covers it, and a file that seems older than it is would be passed over. 0 where the
    record is not in the log.
    """
    first = max(queue_offset - 2, queue.first_unit_offset())
    places = queue.read_units(first, queue_offset + 1)["commit_log_offset"].tolist()
    times = [view.store_timestamp_at(place) for place in places]
    if times[-1] is None:
        return 0
    return int(agreed_times(np.array([t for t in times if t is not None], np.int64))[-1])
