# SPDX-License-Identifier: Apache-2.0
"""Encode rows as requests to brokers: batches of one queue each, encoded by column.

Source: RocketMQ ``MessageDecoder.encodeMessages``, ``MessageBatch`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqnet.client.producer.message_batch import MAX_BATCH_MESSAGES
from rmqsource.live.duplicates import PROPERTY_SPARK_BATCH
from store_core.arrow import binary_parts, pa, pc, replace_rows
from store_core.layout import (
    INNER_ITEM,
    MAX_PROPERTIES_BYTES,
    NAME_VALUE_SEPARATOR,
    PROPERTIES_LENGTH,
    PROPERTY_DELAY,
    PROPERTY_SEPARATOR,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRANSACTION_PREPARED,
)
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.sink.rows import RecordRows
    from store_core.arrow_types import Array, RecordBatch

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

_EMPTY = pa.scalar(b"", pa.binary())
_NAME_VALUE, _SEPARATOR = bytes([NAME_VALUE_SEPARATOR]), bytes([PROPERTY_SEPARATOR])
_DELAYING = (
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
)
"""Brokers check for these properties in single messages only."""


class SendRequest(NamedTuple):
    """One request: a batch of messages, or a single one.

    Attributes
    ----------
    properties
        Properties of a single message; None for a batch.
    """

    topic: str
    queue_number: int
    sys_flag: int
    born_timestamp: int
    reconsume_times: int
    flag: int
    body: bytes
    properties: bytes | None
    messages: int


def with_repeat_property(properties: Array, values: Array) -> Array:
    """Append ``__SPARK_BATCH__`` to property bytes; it overrides an earlier value."""
    offsets, data = binary_parts(properties)
    is_open = np.diff(offsets) > 0
    is_open[is_open] = data[offsets[1:][is_open] - 1] != PROPERTY_SEPARATOR
    between = pa.array([b"", _SEPARATOR], pa.binary()).take(pa.array(is_open.astype(np.int8)))
    name = pa.scalar(PROPERTY_SPARK_BATCH.encode() + _NAME_VALUE, pa.binary())
    separator = pa.scalar(_SEPARATOR, pa.binary())
    return pc.binary_join_element_wise(properties, between, name, values, separator, _EMPTY)


def without_transaction(properties: Array) -> Array:
    """Remove the mark of half messages from property bytes, as a broker would not deliver those."""
    mark = PROPERTY_TRANSACTION_PREPARED.encode() + _NAME_VALUE
    found = pc.match_substring(properties, mark).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(found)
    if len(rows) == 0:
        return properties
    cleaned = [_without(raw, mark) for raw in properties.take(pa.array(rows)).to_pylist()]
    return replace_rows(properties, rows, pa.array(cleaned, pa.binary()))


def _without(raw: bytes, mark: bytes) -> bytes:
    return b"".join(
        part + _SEPARATOR for part in raw.split(_SEPARATOR) if part and not part.startswith(mark)
    )


def too_long(properties: Array) -> Bools:
    """Return which property bytes are too long for a record."""
    lengths: Bools = np.diff(binary_parts(properties)[0]) > MAX_PROPERTIES_BYTES
    return lengths


def requests_of(rows: RecordRows, most_bytes: int) -> Iterator[SendRequest]:
    """Yield the requests of some rows; for each queue in the order of the rows, delayed ones last.

    Parameters
    ----------
    most_bytes
        Limit of the messages' bytes in a batch, which has at least one message.
    """
    batch = rows.batch
    delayed = _is_delayed(batch.column("properties_raw"))
    # Delayed messages are delivered later anyway; all others stay in the order of their queue.
    order = np.lexsort((delayed, rows.queue_id, rows.topic_code))
    keys = _keys(rows, delayed | _is_of_retry_topic(rows))
    ordered = keys[:, order]
    changes = np.flatnonzero((np.diff(ordered) != 0).any(axis=0)) + 1
    bounds = np.concatenate([[0], changes, [batch.num_rows]])
    items = _items(batch.take(pa.array(order)))
    for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        key = _Key(*ordered[:, start].tolist())
        if key.is_single:
            yield from _singles(rows, key, order[start:stop])
        else:
            yield from _batches(rows, key, items, order, (start, stop), most_bytes)


class _Key(NamedTuple):
    """The fields that all messages of a request share."""

    topic_code: int
    queue_number: int
    sys_flag: int
    born_timestamp: int
    reconsume_times: int
    is_single: int

    def request(
        self, topics: list[str], flag: int, body: bytes, properties: bytes | None, messages: int
    ) -> SendRequest:
        topic = topics[self.topic_code]
        shared = (self.queue_number, self.sys_flag, self.born_timestamp, self.reconsume_times)
        return SendRequest(topic, *shared, flag, body, properties, messages)


def _keys(rows: RecordRows, single: Bools) -> Int64s:
    """Return an array with a row for each field of `_Key`."""
    batch = rows.batch
    count = batch.num_rows

    def numbers(name: str) -> Any:
        if name not in batch.schema.names:
            return np.zeros(count, np.int64)
        return batch.column(name).to_numpy(zero_copy_only=False)

    return np.stack(
        [
            rows.topic_code.astype(np.int64),
            rows.queue_id.astype(np.int64),
            numbers("sys_flag").astype(np.int64),
            numbers("born_timestamp").astype(np.int64),
            numbers("reconsume_times").astype(np.int64),
            single.astype(np.int64),
        ]
    )


def _is_of_retry_topic(rows: RecordRows) -> Bools:
    """Return which rows are for a retry topic, for which brokers refuse batches."""
    of_topic = np.array([topic.startswith(RETRY_PREFIX) for topic in rows.topics], np.bool_)
    found: Bools = of_topic[rows.topic_code]
    return found


def _is_delayed(properties: Array) -> Bools:
    found = np.zeros(len(properties), np.bool_)
    for name in _DELAYING:
        mark = name.encode() + _NAME_VALUE
        found |= pc.match_substring(properties, mark).to_numpy(zero_copy_only=False)
    return found


class _Items(NamedTuple):
    """Consecutive messages in the encoding of a client's batch, and where each begins."""

    block: npt.NDArray[np.uint8]
    bounds: Int64s


def _items(batch: RecordBatch) -> _Items:
    body, properties = batch.column("body"), batch.column("properties_raw")
    body_bytes = np.diff(binary_parts(body)[0]).astype(np.int64)
    properties_bytes = np.diff(binary_parts(properties)[0]).astype(np.int64)
    header = np.zeros(batch.num_rows, INNER_ITEM.dtype)
    sizes = INNER_ITEM.size + body_bytes + PROPERTIES_LENGTH.size + properties_bytes
    header["total_size"], header["body_length"] = sizes, body_bytes
    if "flag" in batch.schema.names:
        header["flag"] = batch.column("flag").to_numpy(zero_copy_only=False)
    lengths = properties_bytes.astype(PROPERTIES_LENGTH.dtype["value"])
    joined = pc.binary_join_element_wise(_fixed(header), body, _fixed(lengths), properties, _EMPTY)
    return _Items(binary_parts(joined)[1], np.concatenate([[0], np.cumsum(sizes)]))


def _fixed(values: npt.NDArray[Any]) -> Array:
    """Return values of fixed width as a binary column, without copying."""
    width = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int64).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _batches(
    rows: RecordRows,
    key: _Key,
    items: _Items,
    order: Int64s,
    span: tuple[int, int],
    most_bytes: int,
) -> Iterator[SendRequest]:
    at, stop = span
    bounds = items.bounds
    while at < stop:
        end = int(np.searchsorted(bounds, bounds[at] + most_bytes, "right")) - 1
        end = min(max(end, at + 1), at + MAX_BATCH_MESSAGES, stop)
        if bounds[end] - bounds[at] > most_bytes:
            # A broker applies its limit of a body to a whole batch; alone, a larger one may fit.
            yield from _singles(rows, key, order[at:end])
        else:
            body = items.block[bounds[at] : bounds[end]].tobytes()
            yield key.request(rows.topics, 0, body, None, end - at)
        at = end


def _singles(rows: RecordRows, key: _Key, order: Int64s) -> Iterator[SendRequest]:
    batch = rows.batch.take(pa.array(order))
    names = batch.schema.names
    flags = batch.column("flag").to_pylist() if "flag" in names else [0] * batch.num_rows
    bodies, properties = (batch.column(name).to_pylist() for name in ("body", "properties_raw"))
    for flag, body, raw in zip(flags, bodies, properties):
        yield key.request(rows.topics, flag, body, raw, 1)
