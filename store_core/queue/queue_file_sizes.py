"""Bytes of the files that queues consist of: as configured, as they are, or RocketMQ's defaults."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from store_core.layout.consume_queue import BATCH_CQ_UNIT, CQ_UNIT
from store_core.queue.consume_queue import list_consume_queues

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory

SIMPLE_ROOT = "consumequeue"
EXT_ROOT = "consumequeue_ext"
BATCH_ROOT = "batchconsumequeue"
DEFAULT_UNITS_PER_FILE = 300_000
DEFAULT_EXT_FILE_BYTES = 48 << 20
_QUEUES_LOOKED_AT = 16


class QueueFileSizes(NamedTuple):
    """Bytes of a file of each kind of queue."""

    simple: int
    ext: int
    batch: int


def queue_file_sizes(directory: StoreDirectory, config: MessageStoreConfig) -> QueueFileSizes:
    """Return the sizes of a store's queue files.

    A size that is not configured is that of most of the first files that are there, else
    RocketMQ's default (``MessageStoreConfig``, release 5.3.3).
    """
    simple = config.mapped_file_size_consume_queue or _seen_size(directory, SIMPLE_ROOT)
    ext = config.mapped_file_size_consume_queue_ext or _seen_size(directory, EXT_ROOT)
    batch = config.mapper_file_size_batch_consume_queue or _seen_size(directory, BATCH_ROOT)
    return QueueFileSizes(
        _whole_units(simple or DEFAULT_UNITS_PER_FILE * CQ_UNIT.size, CQ_UNIT.size),
        ext or DEFAULT_EXT_FILE_BYTES,
        _whole_units(batch or DEFAULT_UNITS_PER_FILE * BATCH_CQ_UNIT.size, BATCH_CQ_UNIT.size),
    )


def _whole_units(file_bytes: int, unit_bytes: int) -> int:
    return -(-file_bytes // unit_bytes) * unit_bytes


def _seen_size(directory: StoreDirectory, root_name: str) -> int:
    """Return the size that most of the first queues' first files have; 0 if there is none."""
    paths = list(list_consume_queues(directory, root_name).queues.values())
    entries = (directory.list(path)[:1] for path in paths[:_QUEUES_LOOKED_AT])
    sizes = Counter(entry.size for listed in entries for entry in listed if entry.size)
    return sizes.most_common(1)[0][0] if sizes else 0
