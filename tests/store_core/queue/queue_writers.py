"""What tests of the writers of queues share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from store_core.files.store_directory import StoreDirectory
from store_core.queue.batch_consume_queue_writer import BatchConsumeQueueWriter
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue_ext import open_consume_queue_ext
from store_core.queue.consume_queue_ext_writer import ConsumeQueueExtWriter
from store_core.queue.consume_queue_writer import ConsumeQueueWriter, RecentUnits
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE
from store_core.queue.queue_files import QueueFiles


def open_writer(path, file_size, ext=None, *, trusted=True):
    """Open queue 0 of topic T, whose files lie in a directory; recover it."""
    queue = ConsumeQueue.open(StoreDirectory(str(path.parent)), "T", 0, str(path), file_size)
    writer = ConsumeQueueWriter(queue, QueueFiles(path, file_size), RecentUnits(), ext)
    writer.recover(trusted=trusted)
    return writer


def open_batch_writer(path, file_size, *, trusted=True):
    """Open batch queue 0 of topic T, whose files lie in a directory; recover it."""
    directory = StoreDirectory(str(path.parent))
    segments = BATCH_CONSUME_QUEUE.segments(directory, str(path), file_size)
    files = QueueFiles(path, file_size)
    writer = BatchConsumeQueueWriter(directory, ("T", 0), segments, files)
    writer.recover(trusted=trusted)
    return writer


def open_ext_writer(path, file_size):
    """Open the extension units in a directory; their end is known after a recovery only."""
    ext = open_consume_queue_ext(StoreDirectory(str(path.parent)), str(path), file_size)
    return ConsumeQueueExtWriter(ext, QueueFiles(path, file_size))


def bitmaps_of(ext, addresses):
    """Return the filter bitmap of each extension unit, None where there is none."""
    sizes = ext.read(addresses).bitmap_size
    found = [None] * len(addresses)
    for size in np.unique(sizes[sizes > 0]).tolist():
        units = ext.read(addresses, bitmap_bytes=size)
        for row in np.flatnonzero(sizes == size).tolist():
            found[row] = units.bitmaps[row].tobytes()
    return found


def with_bitmaps(requests, bitmaps):
    """Return dispatch requests that have these filter bitmaps."""
    column = np.full(len(requests), None, object)
    column[: len(bitmaps)] = bitmaps[: len(requests)]
    return replace(requests, filter_bitmap=column)


def state(queue):
    return queue.min_offset, queue.max_offset, queue.max_physic_offset
