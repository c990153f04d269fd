# SPDX-License-Identifier: Apache-2.0
"""A benchmark store with its queues in a RocksDB database (``storeType=defaultRocksDB``)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
from rocksdict import DBCompressionType, Options, Rdict, WriteBatch

from store_core.database.rocksdb_layout import (
    DISPATCHED_TOPIC,
    OFFSET_FAMILY,
    QUEUE_DATABASE_UNIT,
    QUEUE_END,
    end_key,
    unit_key,
    unit_prefix,
)
from store_core.layout import COMMIT_LOG_DIR, CONSUME_QUEUE_DIR
from store_core.snapshot.store_snapshot import StoreSnapshot

_PAIRS_AT_ONCE = 1 << 16
_FIELDS = ("commit_log_offset", "message_size", "tags_code")


def ensure_queue_database(root: str) -> str:
    """Return such a store, next to the one with queues in files; both have the same log files."""
    source, target = Path(root), Path(f"{root}-rocksdb")
    if not target.exists():
        unfinished = Path(f"{target}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source, unfinished, ignore=_without_queues, copy_function=os.link)
        _write_database(root, unfinished / CONSUME_QUEUE_DIR)
        unfinished.rename(target)
    return str(target)


def _without_queues(directory: str, names: list[str]) -> list[str]:
    keep = {COMMIT_LOG_DIR, "config", "checkpoint", "index", "lock"}
    is_root = COMMIT_LOG_DIR in names
    return [name for name in names if is_root and name not in keep]


def _write_database(root: str, target: Path) -> None:
    """Write all units, compressed as by a broker, and the ends of the queues."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    database = Rdict(str(target), options)
    try:
        offsets = database.create_column_family(OFFSET_FAMILY, options)
        with StoreSnapshot(root) as store:
            for topic, queue_id in sorted(store.queue_paths):
                last = _write_queue(database, store, topic, queue_id)
                offsets[end_key(topic.encode(), queue_id)] = last
            end = store.end_offset.to_bytes(8, "big")
            offsets[end_key(DISPATCHED_TOPIC.encode(), 0)] = end
        offsets.flush()
        database.flush()
        database.compact_range(None, None)
    finally:
        database.close()


def _write_queue(database: Rdict, store: StoreSnapshot, topic: str, queue_id: int) -> bytes:
    """Write the units of one queue; return the database value for the queue's end."""
    held = store.queue_range(topic, queue_id)
    queue = store.consume_queue(topic, queue_id)
    if queue is None:
        raise ValueError(f"{topic}/{queue_id} is gone")
    prefix = unit_prefix(topic.encode(), queue_id)
    for start in range(held.min_offset, held.max_offset, _PAIRS_AT_ONCE):
        units = queue.read_units(start, min(start + _PAIRS_AT_ONCE, held.max_offset))
        values = np.zeros(len(units), QUEUE_DATABASE_UNIT.dtype)
        for field in _FIELDS:
            values[field] = units[field]
        batch = WriteBatch(raw_mode=True)
        for row, value in enumerate(values):
            batch.put(unit_key(prefix, start + row), value.tobytes())
        database.write(batch)
    return QUEUE_END.pack(commit_log_offset=held.last_start, queue_offset=held.max_offset - 1)
