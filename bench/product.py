# SPDX-License-Identifier: Apache-2.0
"""Calls of the measured code other than Spark's ``format("rocketmq-store")``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from rmqsource.spark.store_format import RocketMQStoreDataSource
from store_core.codec.message_batch_codec import MessageColumns, message_schema
from store_core.config.message_store_config import MessageStoreConfig
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import CommitLog, scan_frames
from store_core.log.log_scan import BatchSizer, refuse_gap

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DECODE_ROWS = 10_000
DECODE_BYTES = 8 << 20
_COLUMNS = [name for name in message_schema().names if name != "properties_raw"]


def decode_all(
    root: str, end_offset: int, max_rows: int = DECODE_ROWS, max_bytes: int = DECODE_BYTES
) -> int:
    """Decode all columns of all records up to ``end_offset``; return the number of records."""
    log = CommitLog(StoreDirectory(root), MessageStoreConfig(store_path_root_dir=root))
    rows = 0
    sizer, start = BatchSizer(max_rows, max_bytes), log.segments.min_offset
    for frames in scan_frames(log, start, end_offset, on_gap=refuse_gap, sizer=sizer):
        MessageColumns(frames).columns(_COLUMNS)
        rows += len(frames)
    log.close()
    return rows


class Split(NamedTuple):
    """How the reader splits a scan."""

    partitions: int
    rows_per_batch: int


def scan_split(root: str, schema: StructType) -> Split:
    """Return the number of partitions of a scan and the usual rows of a record batch."""
    source = RocketMQStoreDataSource({"path": root})
    reader = source.reader(schema=schema)
    partitions = reader.partitions()
    sizes = Counter(batch.num_rows for batch in reader.read(partitions[0]))
    return Split(len(partitions), max(sizes, key=lambda rows: rows * sizes[rows]))
