"""The checks of ``put_checks`` for all rows of a record batch at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from store_core.codec.encoded_records import reserve_property_crc
from store_core.codec.gather import binary_parts
from store_core.layout.message import (
    CRC32_PROPERTY_BYTES,
    HEADER_IPV4,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    MAX_PROPERTIES_BYTES,
)
from store_core.put.put_checks import Refusal, illegal, size_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from store_core.arrow_types import Array, RecordBatch
    from store_core.put.put_columns import PutColumns
    from store_core.put.put_context import PutContext

    Int64s = npt.NDArray[np.int64]

NUMBERS = (
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)
HOSTS = ("born_host", "store_host")


class _Check(NamedTuple):
    """Rows that fail, and what is said of the first of them."""

    rows: npt.NDArray[np.bool_]
    refusal: Callable[[int], Refusal]


def number_of(batch: RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return a column of numbers; zeros where it is missing."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, HEADER_IPV4.dtype[name].newbyteorder("="))
    numbers: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    return numbers


def refused_row(
    columns: PutColumns, context: PutContext, bad_inner: Mapping[int, Refusal]
) -> tuple[int, Refusal] | None:
    """Return the first row that cannot be put, and why.

    Parameters
    ----------
    bad_inner
        Rows that were refused as inner batches or for light queues.
    """
    first: tuple[int, Refusal] | None = None
    for check in _checks(columns, context, bad_inner):
        row = int(np.argmax(check.rows))
        if check.rows[row] and (first is None or row < first[0]):
            first = row, check.refusal(row)
    return first


def _checks(
    columns: PutColumns, context: PutContext, bad_inner: Mapping[int, Refusal]
) -> Iterator[_Check]:
    """Yield the checks in RocketMQ's order."""
    batch, code = columns.batch, columns.topic_code
    refusals = [
        illegal(f"topic {topic!r} is no UTF-8") if mangled else context.facts_of(topic).refusal
        for topic, mangled in zip(columns.topics, columns.mangled)
    ]
    bad_topic = np.array([*(r is not None for r in refusals), True])  # -1, a null, is the last
    yield _Check(
        bad_topic[code],
        lambda row: (refusals[code[row]] if code[row] >= 0 else None) or illegal("topic is null"),
    )
    body = batch.column("body")
    if body.null_count:
        yield _Check(
            body.is_null().to_numpy(zero_copy_only=False), lambda _: illegal("the body is null")
        )
    yield from _number_checks(batch)
    yield from _host_checks(batch)
    if bad_inner:
        rows = np.zeros(batch.num_rows, bool)
        rows[list(bad_inner)] = True
        yield _Check(rows, bad_inner.__getitem__)
    yield from _size_checks(batch, context)


def _number_checks(batch: RecordBatch) -> Iterator[_Check]:
    for name in NUMBERS:
        if name not in batch.schema.names:
            continue
        values = number_of(batch, name)
        bad = values < 0 if name == "queue_id" else np.zeros(len(values), bool)
        if values.itemsize > HEADER_IPV4.dtype[name].itemsize:
            bad |= values != values.astype(np.int32)
        yield _Check(bad, partial(_out_of_bounds, name, values))


def _out_of_bounds(name: str, values: npt.NDArray[Any], row: int) -> Refusal:
    return illegal(f"{name} {values[row]} is out of bounds")


def _no_host(name: str, sizes: Int64s, row: int) -> Refusal:
    return illegal(f"{name} has {sizes[row]} bytes, not 8 or 20")


def _host_checks(batch: RecordBatch) -> Iterator[_Check]:
    for name in HOSTS:
        sizes = _lengths(batch.column(name))
        bad = (sizes != IPV4_HOST_BYTES) & (sizes != IPV6_HOST_BYTES)
        yield _Check(bad, partial(_no_host, name, sizes))


def _size_checks(batch: RecordBatch, context: PutContext) -> Iterator[_Check]:
    column = batch.column("properties_raw")
    properties, body = _lengths(column), _lengths(batch.column("body"))
    if context.config.enabled_append_prop_crc:
        near = np.flatnonzero(properties > MAX_PROPERTIES_BYTES - CRC32_PROPERTY_BYTES - 1)
        properties = properties + CRC32_PROPERTY_BYTES
        for row in near.tolist():  # a separator may have to be added, an old CRC is taken away
            properties[row] = len(reserve_property_crc(column[row].as_py()))
    bad = (properties > MAX_PROPERTIES_BYTES) | (body > context.config.max_message_size)

    def refusal(row: int) -> Refusal:
        found = size_refusal(int(properties[row]), int(body[row]), context.config)
        return found or illegal("too large")

    yield _Check(bad, refusal)


def _lengths(column: Array) -> Int64s:
    return np.diff(binary_parts(column)[0]).astype(np.int64)
