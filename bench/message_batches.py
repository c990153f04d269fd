# SPDX-License-Identifier: Apache-2.0
"""The messages of the benchmark stores before they are stored, as columns and one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from bench.store_content import (
    BODY_POOL,
    BORN_HOST,
    FIRST_TIMESTAMP_MS,
    TAGS,
    key_of,
    make_run,
    property_strings,
    same_length_stop,
    topic_names,
    unique_key_of,
)
from store_core import Message

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.store_content import Run

BATCH_ROWS = 50_000
_TOPICS = 4
_QUEUES = 4


class MessageBatches:
    """Makes record batches as ``MessageStore.append_batch`` takes them.

    The bodies are created here, once; the Java side also creates its body before the clock starts.

    Parameters
    ----------
    body_bytes
        Length of each body.
    """

    def __init__(self, body_bytes: int) -> None:
        pool = np.random.default_rng(1).integers(0, 256, (BODY_POOL, body_bytes), np.uint8)
        self._bodies = _binary(np.tile(pool, (-(-BATCH_ROWS // BODY_POOL), 1)))
        self._names = np.array([name.encode() for name in topic_names(_TOPICS)], "S10")

    def batches(self, messages: int) -> Iterator[Any]:
        """Yield messages 0 to ``messages``, exclusive."""
        at = 0
        while at < messages:
            count = min(messages, same_length_stop(at), at + BATCH_ROWS) - at
            yield self._batch(make_run(at, count, _TOPICS))
            at += count

    def _batch(self, run: Run) -> Any:
        count = len(run.number)
        return pa.RecordBatch.from_pydict(
            {
                "topic": _binary(self._names[run.topic]).cast(pa.string()),
                "queue_id": pa.array(run.queue_id.astype(np.int32)),
                "body": self._bodies.slice(0, count),
                "properties_raw": _binary(property_strings(run)),
                "born_timestamp": pa.array(run.store_timestamp - 2),
                "born_host": pa.repeat(pa.scalar(BORN_HOST, pa.binary()), count),
            }
        )


def message(index: int, body: bytes) -> Message:
    """Return one message, built as a client builds it."""
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
