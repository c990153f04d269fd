# SPDX-License-Identifier: Apache-2.0
"""Turns records that wait for their time into the messages that are delivered.

Source: RocketMQ ``ScheduleMessageService.messageTimeUp``, ``TimerMessageStore.convertMessage``
(release 5.3.3): only topic and queue change, and the stored properties still have ``REAL_TOPIC``
and ``REAL_QID``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.java_string import java_integer
from store_core.codec.message_batch_codec import MessageColumns
from store_core.layout import PROPERTY_REAL_QID, PROPERTY_REAL_TOPIC
from store_core.topics import HALF_TOPIC

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array, RecordBatch
    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_NUMBERS = ("flag", "sys_flag", "born_timestamp", "reconsume_times")


class DeliveredRows(NamedTuple):
    """Messages to put, and the rows of the frames that they come from."""

    batch: RecordBatch
    rows: Int64s


def delivered_rows(frames: RecordFrames) -> DeliveredRows:
    """Return the messages of records that are due.

    Rows that RocketMQ skips are left out: no record (``frames.ok`` is false), no real topic or
    queue, or the half topic as the real one.
    """
    rows = np.flatnonzero(frames.ok)
    columns = MessageColumns(
        frames if len(rows) == len(frames) else frames.take(rows), raw_body=True
    )
    topic = columns.property_values(PROPERTY_REAL_TOPIC)
    queue_id, has_queue = _queue_ids(columns.property_values(PROPERTY_REAL_QID))
    is_kept = has_queue & pc.fill_null(pc.not_equal(topic, HALF_TOPIC), False).to_numpy(
        zero_copy_only=False
    )
    found = columns.frames
    batch = pa.record_batch(
        {
            "topic": topic,
            "body": columns.column("body"),
            "properties_raw": columns.column("properties_raw"),
            "queue_id": pa.array(queue_id),
            **{name: pa.array(found.column(name)) for name in _NUMBERS},
            "born_host": _hosts(found, "born_host"),
            "store_host": _hosts(found, "store_host"),
        }
    )
    if is_kept.all():
        return DeliveredRows(batch, rows)
    return DeliveredRows(batch.filter(pa.array(is_kept)), rows[is_kept])


def _queue_ids(texts: Array) -> tuple[Int64s, Bools]:
    """Return the queue ids, 0 for other texts, and which rows have one."""
    encoded = texts.dictionary_encode()
    numbers = [java_integer(text, 32) for text in encoded.dictionary.to_pylist()]
    code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    values = np.array([*(number or 0 for number in numbers), 0], np.int64)
    return values[code], np.array([*(number is not None for number in numbers), False])[code]


def _hosts(frames: RecordFrames, name: str) -> Array:
    """Return hosts as raw bytes, 8 or 20 per row."""
    groups = frames.hosts(name)
    if len(groups) == 1:
        return _fixed(groups[0][1])
    parts = pa.concat_arrays([_fixed(raw) for _, raw in groups])
    order: Any = np.concatenate([rows for rows, _ in groups])
    return parts.take(pa.array(np.argsort(order)))


def _fixed(raw: npt.NDArray[np.uint8]) -> Array:
    count, width = raw.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
    )
