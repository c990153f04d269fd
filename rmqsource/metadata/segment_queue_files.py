"""Files of consume queues and batch consume queues, and what of the queue lies in each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_facts import NO_RECORD
from rmqsource.metadata.queue_units import read_batch_queue
from rmqsource.metadata.segment_files import StoreFile, numbered_files
from rmqsource.metadata.selection import QueueKey, selected_queues
from store_core.errors import CorruptRecordError
from store_core.layout.consume_queue import BATCH_CQ_UNIT, CQ_UNIT
from store_core.layout.store_paths import BATCH_CONSUME_QUEUE_DIR, CONSUME_QUEUE_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.files.byte_source import ByteSource
    from store_core.queue.queue_range import QueueRange
    from store_core.store_snapshot import StoreSnapshot


def queue_files(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[StoreFile]:
    """Yield the files of all queues; the consume queues come first."""
    keys = sorted(selected_queues(snapshot, options), key=lambda key: (key.is_batch, key))
    for key in keys:
        kind = BATCH_CONSUME_QUEUE_DIR if key.is_batch else CONSUME_QUEUE_DIR
        paths = snapshot.batch_queue_paths if key.is_batch else snapshot.queue_paths
        path = paths[key.topic, key.queue_id]
        files = numbered_files(kind, snapshot.directory.list(path))
        with skip_damaged(f"the content of {key}", options):
            files = _batch(snapshot, key, files) if key.is_batch else _simple(snapshot, key, files)
        yield from files


def _simple(snapshot: StoreSnapshot, key: QueueKey, files: list[StoreFile]) -> list[StoreFile]:
    held = snapshot.queue_range(key.topic, key.queue_id)
    return [_simple_file(snapshot, held, file) for file in files]


def _simple_file(snapshot: StoreSnapshot, held: QueueRange, file: StoreFile) -> StoreFile:
    begin = (file.from_offset or 0) // CQ_UNIT.size
    end = min(begin + file.file_size // CQ_UNIT.size, held.max_offset)
    used = max(end - begin, 0) * CQ_UNIT.size
    low = max(begin, held.min_offset)
    file = file._replace(used_bytes=used, messages=max(end - low, 0))
    if low >= end:
        return file
    with snapshot.directory.open(file.path) as source:
        first = _record_at(source, low - begin)
        last = _record_at(source, end - 1 - begin)
    return file._replace(first_record=first, last_record=last)


def _record_at(source: ByteSource, unit: int) -> int:
    raw = source.read_at(unit * CQ_UNIT.size, CQ_UNIT.size)
    if len(raw) < CQ_UNIT.size:
        raise CorruptRecordError("the file became shorter", source.path, unit * CQ_UNIT.size)
    return int(CQ_UNIT.unpack(raw).commit_log_offset)


def _batch(snapshot: StoreSnapshot, key: QueueKey, files: list[StoreFile]) -> list[StoreFile]:
    """Place the units of the queue in its files: they lie without gaps up to the last one."""
    units, _, expired = read_batch_queue(snapshot, key)
    first_file = files[0].from_offset or 0 if files else 0
    placed = []
    for file in files:
        # rows of `units`; the file may begin before the first one
        begin = ((file.from_offset or 0) - first_file) // BATCH_CQ_UNIT.size - expired
        end = min(begin + file.file_size // BATCH_CQ_UNIT.size, len(units))
        part = units[max(begin, 0) : max(end, 0)]
        records = part["commit_log_offset"]
        placed.append(
            file._replace(
                used_bytes=max(end - begin, 0) * BATCH_CQ_UNIT.size,
                messages=int(part["batch_size"].sum(dtype=np.int64)),
                first_record=int(records[0]) if len(part) else NO_RECORD,
                last_record=int(records[-1]) if len(part) else NO_RECORD,
            )
        )
    return placed
