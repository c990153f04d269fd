# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of queue writers."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from store_core.files.store_directory import StoreDirectory
from store_core.queue.batch_consume_queue_writer import BatchConsumeQueueWriter
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue_ext import ConsumeQueueExtWriter, read_ext_units
from store_core.queue.consume_queue_writer import ConsumeQueueWriter, RecentUnits
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.queue.queue_files import QueueFiles


def open_writer(path, file_size, ext=None, *, trusted=True):
    """Open queue 0 of topic T, whose files are in a directory; recover it."""
    queue = ConsumeQueue.open(StoreDirectory(str(path.parent)), "T", 0, str(path), file_size)
    writer = ConsumeQueueWriter(queue, QueueFiles(path, file_size), RecentUnits(), ext)
    writer.recover(trusted=trusted)
    return writer


def open_batch_writer(path, file_size, *, trusted=True):
    """Open batch queue 0 of topic T, whose files are in a directory; recover it."""
    directory = StoreDirectory(str(path.parent))
    segments = BATCH_CONSUME_QUEUE.segments(directory, str(path), file_size)
    files = QueueFiles(path, file_size)
    writer = BatchConsumeQueueWriter(directory, ("T", 0), segments, files)
    writer.recover(trusted=trusted)
    return writer


def open_ext_writer(path, file_size):
    """Open the extension units in a directory; their end is known only after a recovery."""
    directory = StoreDirectory(str(path.parent))
    segments = CONSUME_QUEUE_EXT.segments(directory, str(path), file_size)
    return ConsumeQueueExtWriter(directory, segments, QueueFiles(path, file_size))


def ext_reader(directory, path, file_size=None):
    """Return a function that looks up extension units in a directory by address."""
    segments = CONSUME_QUEUE_EXT.segments(directory, str(path), file_size)
    return partial(read_ext_units, directory, segments)


def bitmaps_of(read, addresses):
    """Return the filter bitmap of each extension unit, None if there is none."""
    sizes = read(addresses).bitmap_size
    found = [None] * len(addresses)
    for size in np.unique(sizes[sizes > 0]).tolist():
        units = read(addresses, bitmap_bytes=size)
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
