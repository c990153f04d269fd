"""What tests of queues that grow share."""

from __future__ import annotations

from store_core.files.store_directory import StoreDirectory
from store_core.queue.queue_files import QueueFiles


def open_live(live, kind, path, file_size, *, trusted):
    """Open queue 0 of topic T as ``live``, whose files ``kind`` reads; recover it."""
    directory = StoreDirectory(str(path.parents[2]))
    segments = kind.open(directory, "T", 0, str(path), file_size).segments
    queue = live(directory, "T", 0, segments, QueueFiles(path, file_size))
    queue.recover(trusted=trusted)
    return queue


def state(queue):
    return queue.min_offset, queue.max_offset, queue.max_physic_offset
