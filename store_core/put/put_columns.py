# SPDX-License-Identifier: Apache-2.0
"""Converts the columns of a record batch to uniform types, and checks its rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from store_core.arrow import binary_parts, pa
from store_core.codec.java_string import decode_utf8
from store_core.codec.record_encoder import column_without_stored_crc, reserve_property_crc
from store_core.layout import (
    CRC32_PROPERTY_BYTES,
    HEADER_IPV4,
    HEADERS,
    INNER_BATCH_FLAG,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    MAX_PROPERTIES_BYTES,
    NOT_QUEUED_BIT,
    PROPERTY_INNER_BASE,
)
from store_core.put.put_checks import (
    Refusal,
    illegal,
    inner_count,
    light_record_refusal,
    size_refusal,
)
from store_core.put.put_properties import (
    marked_rows,
    queue_names,
    reserved_fault,
    reserved_faults,
    set_property,
    with_light_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    from store_core.arrow_types import Array, RecordBatch
    from store_core.put.put_context import PutContext

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

NUMBERS = (
    "queue_id",
    "flag",
    "sys_flag",
    "born_timestamp",
    "reconsume_times",
    "prepared_transaction_offset",
)
HOSTS = ("born_host", "store_host")
COLUMNS = ("topic", "body", "properties_raw", *NUMBERS, *HOSTS)
_GREATEST_OFFSET = 2**63 - 1
_MAX_FIXED_BYTES = HEADERS[True, True].size + 4  # lengths of topic (V2) and properties


class _Check(NamedTuple):
    """Rows that fail a check, and the function that gives a row's reason."""

    rows: npt.NDArray[np.bool_]
    refusal: Callable[[int], Refusal]


def number_of(batch: RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return a column of numbers; zeros if it is missing."""
    if name not in batch.schema.names:
        return np.zeros(batch.num_rows, HEADER_IPV4.dtype[name].newbyteorder("="))
    numbers: npt.NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    return numbers


def refused_row(
    columns: PutColumns, context: PutContext, bad_inner: Mapping[int, Refusal]
) -> tuple[int, Refusal] | None:
    """Return the first row that cannot be put, and why."""
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
        illegal(f"topic {topic!r} is not UTF-8") if mangled else context.facts_of(topic).refusal
        for topic, mangled in zip(columns.topics, columns.mangled)
    ]
    bad_topic = np.array([*(r is not None for r in refusals), True])  # the last is for -1, a null
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
        for row in near.tolist():  # a separator may be added, an old CRC is removed
            properties[row] = len(reserve_property_crc(column[row].as_py()))
    bad = (properties > MAX_PROPERTIES_BYTES) | (body > context.config.max_message_size)

    def refusal(row: int) -> Refusal:
        found = size_refusal(int(properties[row]), int(body[row]), context.config)
        return found or illegal("too large")

    yield _Check(bad, refusal)


def _lengths(column: Array) -> Int64s:
    return np.diff(binary_parts(column)[0]).astype(np.int64)


@dataclass(frozen=True)
class PutColumns:
    """Rows as they are put.

    Attributes
    ----------
    mangled
        Whether a name's bytes are not UTF-8.
    counts
        Queue offsets that a row takes; 0 for prepared and rollback messages.
    """

    batch: Any
    topics: list[str]
    mangled: list[bool]
    topic_code: npt.NDArray[np.int32]
    queue_id: npt.NDArray[np.int32]
    sys_flag: npt.NDArray[np.int32]
    counts: Int64s
    special: Int64s


def uniform_batch(batch: RecordBatch, store_host: bytes, now: int) -> RecordBatch:
    """Return the batch with uniform types; missing columns and null values are filled in.

    Topic and body keep their nulls, and numbers too large for their field keep their type, so that
    `refused_row` detects them.

    Raises
    ------
    ValueError
        A column is unknown, missing, or of a type that cannot be converted.
    """
    names = batch.schema.names
    unknown = [name for name in names if name not in COLUMNS]
    if unknown or len(set(names)) < len(names) or not {"topic", "body"} <= set(names):
        raise ValueError(
            f"columns {', '.join(names)}: topic and body are required, and each column of "
            f"{', '.join(COLUMNS)} may be there once"
        )
    columns: dict[str, Any] = {}
    try:
        columns["topic"] = _as_binary(batch.column("topic"))
        columns["body"] = _as_binary(batch.column("body"))
        properties = _filled(batch, "properties_raw", b"", _as_binary)
        columns["properties_raw"] = column_without_stored_crc(properties)
        for name in NUMBERS:
            default = now if name == "born_timestamp" else 0
            if name in names or default:
                columns[name] = _filled(batch, name, default, _as_number)
        for name in HOSTS:
            columns[name] = _filled(batch, name, store_host, _as_binary)
    except pa.ArrowInvalid as err:
        raise ValueError(str(err)) from err
    return pa.record_batch(columns)


def put_columns(
    batch: RecordBatch, context: PutContext, refused: Mapping[int, Refusal]
) -> tuple[PutColumns, tuple[int, Refusal] | None]:
    """Return the columns of a `uniform_batch`, and the first row that is refused, if any.

    Parameters
    ----------
    batch
        At least one row.
    """
    topics = batch.column("topic").dictionary_encode()
    raw = topics.dictionary.to_pylist()
    names = [decode_utf8(name) for name in raw]
    mangled = [name.encode() != stored for name, stored in zip(names, raw)]
    code = topics.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    sys_flag = number_of(batch, "sys_flag")
    special, counts, bad_inner = _specials(batch, names, code, sys_flag, context)
    columns = PutColumns(
        batch=batch,
        topics=names,
        mangled=mangled,
        topic_code=code,
        queue_id=number_of(batch, "queue_id"),
        sys_flag=sys_flag,
        counts=counts,
        special=special,
    )
    return columns, refused_row(columns, context, {**bad_inner, **refused})


def _as_binary(column: Array) -> Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _as_number(column: Array) -> Array:
    return column if pa.types.is_int32(column.type) else column.cast(pa.int64())


def _filled(batch: RecordBatch, name: str, default: Any, convert: Callable[[Any], Any]) -> Array:
    if name in batch.schema.names:
        column = convert(batch.column(name))
        return column.fill_null(default) if column.null_count else column
    kind = pa.int64() if isinstance(default, int) else pa.binary()
    return pa.repeat(pa.scalar(default, kind), batch.num_rows)


def _specials(
    batch: RecordBatch,
    topics: list[str],
    code: npt.NDArray[np.int32],
    sys_flag: npt.NDArray[Any],
    context: PutContext,
) -> tuple[Int64s, Int64s, dict[int, Refusal]]:
    """Return the rows that the store completes, queue offsets per row, and refused rows.

    Only these rows are checked one by one: inner batches and rows for light queues, each of which
    is worth many messages or queue entries.
    """
    counts = np.where(sys_flag & NOT_QUEUED_BIT, 0, 1).astype(np.int64)
    inner = (sys_flag & INNER_BATCH_FLAG) != 0
    properties = batch.column("properties_raw")
    marked = marked_rows(properties)
    rows = np.union1d(np.flatnonzero(inner), marked)
    faults = reserved_faults(properties, topics, code, marked)
    special, refused = [], {row: illegal(fault) for row, fault in faults.items()}
    for row in rows.tolist():
        if code[row] < 0 or row in refused:
            continue
        topic, raw, flag = topics[code[row]], properties[row].as_py(), int(sys_flag[row])
        count, refusal = inner_count(topic, flag, raw, context.is_batch_topic(topic))
        fans_out = context.facts_of(topic).may_fan_out and bool(queue_names(raw))
        if refusal is None and counts[row]:
            counts[row] = count
            if flag & INNER_BATCH_FLAG or fans_out:
                special.append(row)
                names = queue_names(raw) if fans_out else []
                body = batch.column("body")[row].as_py() or b""
                refusal = _completed_refusal(topic, raw, flag, names, len(body), context)
        if refusal is not None:
            refused[row] = refusal
    return np.array(special, np.int64), counts, refused


def _completed_refusal(
    topic: str, raw: bytes, sys_flag: int, names: list[str], body_bytes: int, context: PutContext
) -> Refusal | None:
    """Return why a completed row may become too large, assuming offsets of maximum length."""
    if sys_flag & INNER_BATCH_FLAG:
        raw = set_property(raw, PROPERTY_INNER_BASE, str(_GREATEST_OFFSET))
    if names:
        fault = reserved_fault(topic, with_light_offsets(raw, names, lambda _: 0)[0])
        if fault is not None:
            return illegal(fault)
        raw, _ = with_light_offsets(raw, names, lambda _: _GREATEST_OFFSET)
    size = len(reserve_property_crc(raw)) if context.config.enabled_append_prop_crc else len(raw)
    refusal = size_refusal(size, 0, context.config)
    if not names:
        return refusal
    if refusal is not None:
        return illegal(refusal.reason)
    bytes_besides = len(topic.encode()) + body_bytes
    return light_record_refusal(_MAX_FIXED_BYTES + bytes_besides + size, context.config)
