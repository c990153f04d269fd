# SPDX-License-Identifier: Apache-2.0
"""Record batches of table ``messages`` without a store, for the ready source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import numpy as np
import pyarrow as pa

from bench.store_content import (
    FIRST_TIMESTAMP_MS,
    QUEUES,
    TAGS,
    key_of,
    topic_of,
    unique_key_of,
)
from rmqsource.spark_compat import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_FIRST = 500_000
"""First message of a batch; its keys have the usual length."""
_RECORD_BYTES = 180


def _properties(index: int) -> list[tuple[str, str]]:
    return [
        ("UNIQ_KEY", unique_key_of(index)),
        ("KEYS", key_of(index)),
        ("TAGS", f"tag{index % TAGS}"),
        ("WAIT", "true"),
    ]


# The value of each column for one message; the body is separate because its size is given.
_VALUES: dict[str, Callable[[int], Any]] = {
    "topic": topic_of,
    "queue_id": lambda i: i % QUEUES,
    "queue_offset": lambda i: i // 16,
    "commit_log_offset": lambda i: i * _RECORD_BYTES,
    "store_size": lambda _: _RECORD_BYTES,
    "message_id": lambda i: f"7F00000100002A9F{i * _RECORD_BYTES:016X}",
    "unique_key": unique_key_of,
    "keys": lambda i: [key_of(i)],
    "tags": lambda i: f"tag{i % TAGS}",
    "properties": _properties,
    "flag": lambda _: 0,
    "sys_flag": lambda _: 0,
    "body_crc": lambda i: i * 7919 % 0x7FFFFFFF,
    "reconsume_times": lambda _: 0,
    "born_timestamp": lambda i: (FIRST_TIMESTAMP_MS + i - 2) * 1000,
    "store_timestamp": lambda i: (FIRST_TIMESTAMP_MS + i) * 1000,
    "born_host": lambda _: "10.1.2.3:12345",
    "store_host": lambda _: "127.0.0.1:10911",
    "prepared_transaction_offset": lambda _: 0,
    "store": lambda _: "/var/lib/rocketmq/broker-a/store",
}


def ready_batch(schema: StructType, rows: int, body_bytes: int) -> Any:
    """Return a batch of ``rows`` messages with the columns of a Spark schema."""
    wanted = to_arrow_schema(schema)
    indices = range(_FIRST, _FIRST + rows)
    columns = []
    for column in wanted:
        if column.name == "body":
            values = _bodies(rows, body_bytes)
        else:
            value_of = _VALUES[column.name]
            values = [value_of(index) for index in indices]
        columns.append(pa.array(values, column.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _bodies(rows: int, body_bytes: int) -> list[bytes]:
    data = np.random.default_rng(1).bytes(rows * body_bytes)
    return [data[at : at + body_bytes] for at in range(0, rows * body_bytes, body_bytes)]
