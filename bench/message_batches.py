"""The messages of the benchmark stores before they are stored: as columns, and one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.store_content import (
    BORN_HOST,
    FIRST_TIMESTAMP_MS,
    TAGS,
    RecordBuilder,
    key_of,
    make_run,
    same_length_stop,
    topic_names,
    unique_key_of,
)
from store_core import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_ROWS = 50_000
_TOPICS = 4
_QUEUES = 4


def message_batches(messages: int, body_bytes: int, start: int = 0) -> Iterator[Any]:
    """Yield record batches as ``MessageStore.append_batch`` takes them."""
    content = RecordBuilder(body_bytes, _TOPICS, seed=1)
    names = np.array([name.encode() for name in topic_names(_TOPICS)], "S10")
    at = start
    while at < messages:
        count = min(messages, same_length_stop(at), at + BATCH_ROWS) - at
        run = make_run(at, count, _TOPICS)
        nothing = np.zeros(count, np.int64)
        records = content.encode(run, nothing, nothing)
        fields = records.dtype.names or ()
        properties = [name for name in fields[fields.index("uniq_name") :]]
        width = sum(records.dtype[name].itemsize for name in properties)
        packed = np.ascontiguousarray(
            records.view(np.uint8).reshape(count, -1)[:, records.dtype.itemsize - width :]
        )
        yield pa.RecordBatch.from_pydict(
            {
                "topic": _binary(names[run.topic]).cast(pa.string()),
                "queue_id": pa.array(run.queue_id.astype(np.int32)),
                "body": _binary(np.ascontiguousarray(records["body"])),
                "properties_raw": _binary(packed),
                "born_timestamp": pa.array(run.store_timestamp - 2),
                "born_host": pa.repeat(pa.scalar(BORN_HOST, pa.binary()), count),
            }
        )
        at += count


def message(index: int, body: bytes) -> Message:
    """Return one message, made as a client's would be."""
    return Message(
        f"TopicTest{index % _TOPICS}",
        body,
        queue_id=index // _TOPICS % _QUEUES,
        born_timestamp=FIRST_TIMESTAMP_MS + index,
        born_host="10.1.2.3:12345",
        properties={
            "UNIQ_KEY": unique_key_of(index),
            "KEYS": key_of(index),
            "TAGS": f"tag{index % TAGS}",
            "WAIT": "true",
        },
    )


def _binary(values: Any) -> Any:
    width = values.dtype.itemsize * (values.shape[1] if values.ndim > 1 else 1)
    count = len(values)
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int64).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    )
