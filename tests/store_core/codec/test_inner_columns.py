from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.compression import CorruptBodyError, deflate
from store_core.codec.inner_columns import (
    UnwrappedColumns,
    _first_offset,
    holds_inner_batch,
    undecodable_bodies,
)
from store_core.codec.message_batch_codec import MessageColumns, message_schema
from store_core.codec.record_frames import RecordFrames
from store_core.layout.message import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
)
from store_core.message import _inner_base, messages_from_record
from tests.store_core.codec.record_strategies import pack_items, place_records, record_lists
from tests.store_core.codec.test_message_batch_codec import column_values, scalar_value

BATCH = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
FIELDS = {
    "topic": b"T",
    "properties_raw": b"INNER_BASE\x01100\x02",
    "queue_offset": 7,
    "queue_id": 0,
    "born_timestamp": 0,
    "born_host": bytes(8),
    "store_timestamp": 0,
    "store_host": bytes(8),
}
ITEMS = [(1, b"one", b"KEYS\x01a b\x02"), (2, b"", b""), (3, b"three", b"TAGS\x01t")]


def wrapped(number):
    """Return a number as a Java long: additions to the largest ones wrap."""
    return (number + 2**63) % 2**64 - 2**63


def expected_messages(record):
    """Return (messages, damaged) of the scalar codec; a plain damaged body is a null body."""
    try:
        return messages_from_record(record, ""), False
    except CorruptBodyError:
        if record.sys_flag & BATCH == BATCH:
            return [], True
        (message,) = messages_from_record(record, "", inflate_body=False)
        message.body = None
        return [message], True


@settings(max_examples=40, deadline=None)
@given(record_lists)
def test_rows_equal_the_scalar_codec(placed):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    unwrapped = UnwrappedColumns(MessageColumns(RecordFrames(data, base, positions)))
    found = [expected_messages(record) for record in records]
    messages = [message for messages, _ in found for message in messages]
    rows = [row for row, (messages, _) in enumerate(found) for _ in messages]
    assert unwrapped.record_row.tolist() == rows
    for name, kind in zip(message_schema().names, message_schema().types):
        column = unwrapped.column(name)
        column.validate(full=True)
        assert column.type == kind
        expected = [scalar_value(message, name) for message in messages]
        if name == "queue_offset":
            expected = [wrapped(value) for value in expected]
        assert column_values(column) == expected, name
    damaged = [row for row, (_, is_damaged) in enumerate(found) if is_damaged]
    assert sorted(item.row for item in unwrapped.bad_bodies) == damaged
    undecodable = {row for row, _ in undecodable_bodies(RecordFrames(data, base, positions))}
    assert undecodable <= set(damaged)
    batches = {row for row, record in enumerate(records) if record.sys_flag & BATCH == BATCH}
    assert undecodable & batches == set(damaged) & batches


TYPES = [0, COMPRESSION_LZ4, COMPRESSION_ZSTD, COMPRESSION_ZLIB]


@pytest.mark.parametrize("told", [*TYPES, 0x400, 0x700])
@pytest.mark.parametrize("kind", TYPES)
def test_compression_that_flags_do_not_tell(kind, told):
    bodies = [deflate(b"x" * 99, kind), b"plain", b"", b"p", deflate(b"", kind)]
    flags = [COMPRESSED_FLAG | told] * len(bodies)
    is_same = TYPES.index(kind) % 3 == (TYPES.index(told) % 3 if told in TYPES else -1)
    assert undecodable_rows(bodies, flags) == ([1, 3] if is_same else [0, 1, 3, 4])
    assert undecodable_rows(bodies, [told] * len(bodies)) == []


def test_batches_that_are_none():
    items = pack_items(ITEMS)
    bodies = [items, items[:-1], b"plain", bytes(100), b"", deflate(items, 0), deflate(b"plain", 0)]
    flags = [BATCH] * 5 + [BATCH | COMPRESSED_FLAG] * 2
    assert undecodable_rows(bodies, flags) == [1, 2, 3, 6]
    assert undecodable_rows(bodies, [NEED_UNWRAP_FLAG] * len(bodies)) == []


def undecodable_rows(bodies, flags):
    fields = [{**FIELDS, "body": b, "sys_flag": f} for b, f in zip(bodies, flags)]
    data, positions, _ = place_records(fields, 0)
    return [row for row, _ in undecodable_bodies(RecordFrames(data, 0, positions))]


JAVA_LONGS = st.one_of(
    st.none(),
    st.text(alphabet="+-0123456789٣ ", max_size=21),
    st.integers(-(2**64), 2**64).map(str),
    st.sampled_from(["9223372036854775807", "9223372036854775808", "-9223372036854775808", "²"]),
)


@given(JAVA_LONGS, st.integers(-(2**63), 2**63 - 1))
def test_the_first_offset_follows_the_scalar_rule(text, queue_offset):
    properties = {} if text is None else {"INNER_BASE": text}
    assert _first_offset(text, queue_offset) == _inner_base(properties, queue_offset)


@pytest.mark.parametrize("kind", [None, 0x000, 0x100, 0x200, 0x300])
def test_a_batch_becomes_its_messages(kind):
    body, flags = pack_items(ITEMS), BATCH
    if kind is not None:
        body, flags = deflate(body, kind), BATCH | COMPRESSED_FLAG | kind
    plain = {**FIELDS, "body": b"plain", "sys_flag": 0}
    batch = {**FIELDS, "body": body, "sys_flag": flags}
    data, positions, _ = place_records([plain, batch, plain], 0)
    rows = UnwrappedColumns(MessageColumns(RecordFrames(data, 0, positions)))
    assert rows.column("queue_offset").to_pylist() == [7, 100, 101, 102, 7]
    assert rows.column("body").to_pylist() == [b"plain", b"one", b"", b"three", b"plain"]
    assert rows.column("keys").to_pylist() == [None, ["a", "b"], None, None, None]
    assert rows.column("tags").to_pylist() == [None, None, None, "t", None]
    assert rows.column("flag").to_pylist() == [0, 1, 2, 3, 0]
    assert rows.bad_bodies == []


@pytest.mark.parametrize("cut", [1, 10, 25, 30])
def test_a_malformed_batch_gives_no_row_and_is_named(cut):
    body = pack_items(ITEMS)
    batch = {**FIELDS, "body": body[:-cut], "sys_flag": BATCH}
    data, positions, records = place_records([batch, {**batch, "body": body}], 0)
    with pytest.raises(CorruptBodyError):
        messages_from_record(records[0], "")
    rows = UnwrappedColumns(MessageColumns(RecordFrames(data, 0, positions)))
    assert rows.record_row.tolist() == [1, 1, 1]
    assert [item.row for item in rows.bad_bodies] == [0]


def test_one_bit_alone_is_no_batch():
    flags = np.array([0, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG, BATCH, BATCH | 1])
    assert holds_inner_batch(flags).tolist() == [False, False, False, True, True]
    _, _, (record,) = place_records([{**FIELDS, "body": b"", "sys_flag": INNER_BATCH_FLAG}], 0)
    assert len(messages_from_record(record, "")) == 1
    assert messages_from_record(replace(record, sys_flag=BATCH), "") == []
