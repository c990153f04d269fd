# SPDX-License-Identifier: Apache-2.0
"""One task of a write: turns batches into a staged part."""

from __future__ import annotations

import logging
import socket
import uuid
from typing import TYPE_CHECKING

from rmqsource.sink.local_host import message_ids, now_ms
from rmqsource.sink.rows import RowConverter
from store_core.arrow import pa
from store_core.codec.record_encoder import encode_records
from store_core.staged_commit.staged_part import StagedPart
from store_core.staged_commit.staged_part_writer import StagedFiles, StagedPartWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqsource.sink.write_plan import SinkPlan
    from store_core.arrow_types import RecordBatch

logger = logging.getLogger(__name__)

_JOINED_BYTES, _JOINED_ROWS = 8 << 20, 1 << 16  # twice as many are slower, as no cache holds them
_SLICE_BYTES = 64 << 20


def stage_part(batches: Iterable[RecordBatch], plan: SinkPlan, partition_id: int) -> StagedPart:
    """Encode and stage the rows of a partition.

    Each attempt of a task stages its own files; only files that a commit message names count.

    Raises
    ------
    SinkRowError
        A row cannot be a message, and ``badRows`` is ``fail``.
    StoreWriteError
        The files cannot be written.
    """
    converter = RowConverter(plan, partition_id, message_ids(), now_ms)
    name = f"part-{partition_id:06d}-{uuid.uuid4().hex}"
    staged = _stage(batches, plan, converter, name)
    part = StagedPart(
        partition_id=partition_id,
        directory=plan.job_directory,
        name=name if staged.messages else "",
        rows_bytes=staged.rows_bytes,
        rows_checksum=staged.rows_checksum,
        messages=staged.messages,
        chunks=staged.chunks,
        queues=staged.queues,
        topics=tuple(sorted(converter.topics.items())),
        delay_levels=tuple(sorted(converter.delay_levels)),
        dropped=tuple(sorted(converter.bad_rows.dropped.items())),
        host=socket.gethostname(),
        property_crc=plan.property_crc,
        is_multi_dispatch=staged.is_multi_dispatch,
    )
    logger.info("staged %d messages of %d bytes as %s", part.messages, part.records_bytes, name)
    return part


def _stage(
    batches: Iterable[RecordBatch], plan: SinkPlan, converter: RowConverter, name: str
) -> StagedFiles:
    """Write the files of a part; none if there are no rows."""
    writer: StagedPartWriter | None = None
    try:
        for batch in _blocks(batches):
            rows = converter.convert(batch)
            if rows is None:
                continue
            if writer is None:
                writer = StagedPartWriter(
                    plan.job_directory, name, plan.delay_levels_ms, with_tags=plan.tag_index
                )
            encoded = encode_records(
                rows.batch, store_host=plan.store_host, property_crc=plan.property_crc
            )
            writer.append(encoded, rows.topics, rows.topic_code, rows.queue_id, rows.properties)
        return StagedFiles() if writer is None else writer.finish()
    finally:
        if writer is not None:
            writer.close()


def _blocks(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the rows in batches of suitable length.

    Small batches are joined, which saves fixed costs of each step. Large ones are cut, because a
    block of records has at most 2 GiB.
    """
    held: list[RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= _JOINED_ROWS or sum(b.nbytes for b in held) >= _JOINED_BYTES:
            yield from _slices(held)
            held = []
    yield from _slices(held)


def _slices(held: list[RecordBatch]) -> Iterator[RecordBatch]:
    if not held:
        return
    for batch in pa.Table.from_batches(held).combine_chunks().to_batches():
        parts = max(batch.nbytes // _SLICE_BYTES, 1)
        step = max(-(-batch.num_rows // parts), 1)
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)
