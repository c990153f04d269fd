"""Modification times of queue files: 4.x brokers look for a store time by them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from store_core.files.store_directory import StoreDirectory
from store_core.layout.consume_queue import CQ_UNIT
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.queue_directories import list_consume_queues

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
            unit = queue.read_units(last, last + 1)
            store_time = view.store_timestamp_at(int(unit["commit_log_offset"][0]))
            if store_time is not None and store_time > 0:
                seconds = -(-store_time // 1000)
                os.utime(segment.path, (seconds, seconds))
