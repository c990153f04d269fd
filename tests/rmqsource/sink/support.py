# SPDX-License-Identifier: Apache-2.0
"""Batches as Spark passes them, converted and decoded again."""

from __future__ import annotations

import pyarrow as pa

from rmqsource.sink.columns import resolve_sink_columns
from rmqsource.sink.options import parse_sink_options
from rmqsource.sink.rows import RowConverter
from rmqsource.sink.write_plan import SinkPlan
from store_core import MessageStoreConfig
from store_core.codec.message_codec import decode_message
from store_core.codec.message_id import ClientMessageIds, parse_host
from store_core.codec.record_encoder import encode_records

NOW_MS = 1_700_000_000_000
STORE_HOST = parse_host("10.0.0.9:10911")
TYPES = {
    "topic": ("string", pa.string()),
    "body": ("binary", pa.binary()),
    "queue_id": ("int", pa.int32()),
    "keys": ("array<string>", pa.list_(pa.string())),
    "tags": ("string", pa.string()),
    "properties": ("map<string,string>", pa.map_(pa.string(), pa.string())),
    "properties_raw": ("binary", pa.binary()),
    "unique_key": ("string", pa.string()),
    "sharding_key": ("string", pa.string()),
    "flag": ("int", pa.int32()),
    "born_timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "born_host": ("string", pa.string()),
    "reconsume_times": ("int", pa.int32()),
    "sys_flag": ("int", pa.int32()),
    "delay_level": ("int", pa.int32()),
    "body_crc": ("int", pa.int32()),
}


def batch_of(**columns):
    """Return a record batch of lists of values."""
    arrays = {name: pa.array(values, TYPES[name][1]) for name, values in columns.items()}
    return pa.record_batch(arrays)


def plan_of(names, **options):
    """Return the plan of a write of these columns."""
    topics = options.pop("topic_queues", {})
    segment_bytes = options.pop("segment_bytes", 1 << 30)
    given = {"path": "/store", **{name: str(value) for name, value in options.items()}}
    parsed = parse_sink_options(given)
    fields = [(name, TYPES[name][0]) for name in names]
    columns = resolve_sink_columns(fields, default_topic=parsed.topic)
    levels = MessageStoreConfig().delay_levels_ms
    return SinkPlan(
        options=parsed,
        columns=columns,
        job_directory="",
        store_host=STORE_HOST,
        segment_bytes=segment_bytes,
        delay_levels_ms=levels,
        topic_queues=topics,
    )


def converter_of(batch, partition_id=0, **options):
    """Return a converter of such batches."""
    plan = plan_of(batch.schema.names, **options)
    ids = ClientMessageIds(bytes([10, 0, 0, 1]), 7, 1, NOW_MS)
    return RowConverter(plan, partition_id, ids, lambda: NOW_MS)


def records_of(rows):
    """Return the decoded records of converted rows."""
    encoded = encode_records(rows.batch, store_host=STORE_HOST)
    found = []
    for start, size in zip(encoded.starts.tolist(), encoded.sizes.tolist()):
        data = encoded.block[start : start + size].tobytes()
        found.append(decode_message(data, 0, 0, "", check_crc=True))
    return found


def convert(batch, **options):
    """Convert and decode."""
    rows = converter_of(batch, **options).convert(batch)
    return [] if rows is None else records_of(rows)
