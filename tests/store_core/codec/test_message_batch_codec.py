# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.compression import CorruptBodyError, deflate
from store_core.codec.crc32 import body_crc_failures
from store_core.codec.inner_columns import (
    InnerItem,
    UnwrappedColumns,
    _first_offset,
    inner_item_spans,
    is_inner_batch,
    split_inner_batch,
    undecodable_bodies,
)
from store_core.codec.message_batch_codec import (
    MessageColumns,
    message_schema,
    timestamp_column,
)
from store_core.codec.message_codec import body_crc
from store_core.codec.record_frames import RecordFrames, holds_inner_batch
from store_core.layout import (
    COMPRESSED_FLAG,
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    INNER_BATCH_FLAG,
    NEED_UNWRAP_FLAG,
)
from store_core.message import _inner_base, messages_from_record
from tests.examples import examples
from tests.store_core.codec.record_strategies import (
    pack_items,
    place_records,
    record_lists,
    time_ms,
)

MIN_MS, MAX_MS = -62135596800000, 253402300799999
TIMES = ("born_timestamp", "store_timestamp")
BASES = st.sampled_from([0, 2**40])
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
TO_PACK = [(1, b"one", b"KEYS\x01a b\x02"), (2, b"", b""), (3, b"three", b"TAGS\x01t")]


def column_values(column):
    """Return an Arrow column as Python values; times as microseconds, maps as dicts."""
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_map(column.type):
        values = column.to_pylist()
        for pairs in values:
            assert len(dict(pairs)) == len(pairs), "a name twice"
        return [dict(pairs) for pairs in values]
    return column.to_pylist()


def scalar_value(message, name):
    """Return the column's expected value for a message of the scalar codec."""
    value = getattr(message, name)
    if name in TIMES:
        return value * 1000 if MIN_MS <= value <= MAX_MS else None
    return value


def without_unwrapping(record):
    """Return the record's own message, with its body as stored."""
    sys_flag = record.sys_flag & ~(INNER_BATCH_FLAG | NEED_UNWRAP_FLAG)
    plain = type(record)(**{**vars(record), "sys_flag": sys_flag})
    (message,) = messages_from_record(plain, "", inflate_body=False)
    message.sys_flag = record.sys_flag
    return message, plain


@settings(max_examples=examples(40), deadline=None)
@given(record_lists)
def test_columns_equal_the_scalar_codec(placed):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    frames = RecordFrames(data, base, positions)
    assert frames.ok.all()
    columns = MessageColumns(frames)
    for name, kind in zip(message_schema().names, message_schema().types):
        column = columns.column(name)
        column.validate(full=True)
        assert column.type == kind
        if name != "body":
            expected = [scalar_value(without_unwrapping(r)[0], name) for r in records]
            assert column_values(column) == expected, name
    bodies, bad = [], []
    for row, record in enumerate(records):
        try:
            bodies.append(messages_from_record(without_unwrapping(record)[1], "")[0].body)
        except CorruptBodyError:
            bodies.append(None)
            bad.append(row)
    assert columns.column("body").to_pylist() == bodies
    assert [item.row for item in columns.bad_bodies] == bad
    raw = MessageColumns(frames, raw_body=True).column("body").to_pylist()
    assert raw == [record.body for record in records]


@settings(max_examples=examples(100), deadline=None)
@given(record_lists)
def test_crc_failures_are_those_of_the_scalar_codec(placed):
    data, positions, records = placed
    base = records[0].commit_log_offset if records else 0
    failures = body_crc_failures(RecordFrames(data, base, positions))
    wrong = [i for i, r in enumerate(records) if r.body and body_crc(r.body) != r.body_crc]
    assert [failure.row for failure in failures] == wrong


@given(st.lists(time_ms))
def test_times_outside_of_the_years_1_to_9999_are_null(times):
    column = timestamp_column(np.array(times, np.int64))
    expected = [t * 1000 if MIN_MS <= t <= MAX_MS else None for t in times]
    assert column.view(pa.int64()).to_pylist() == expected


@pytest.mark.parametrize("kind", [0x000, 0x100, 0x200, 0x300])
def test_a_damaged_body_is_null_and_named(kind):
    fields = {
        "topic": b"T",
        "properties_raw": b"",
        "queue_offset": 0,
        "queue_id": 0,
        "born_timestamp": 0,
        "born_host": bytes(8),
        "store_timestamp": 0,
        "store_host": bytes(8),
    }
    good = deflate(b"text" * 50, kind)
    data, positions, _ = place_records(
        [
            {**fields, "body": good, "sys_flag": 1 | kind},
            {**fields, "body": b"\x05" + good[1:], "sys_flag": 1 | kind},
            {**fields, "body": b"plain", "sys_flag": 0},
        ],
        0,
    )
    columns = MessageColumns(RecordFrames(data, 0, positions))
    assert columns.column("body").to_pylist() == [b"text" * 50, None, b"plain"]
    assert [item.row for item in columns.bad_bodies] == [1]
    assert columns.column("topic").to_pylist() == ["T"] * 3


@settings(max_examples=10, deadline=None)
@given(record_lists)
def test_frames_share_their_columns(placed):
    data, positions, records = placed
    frames = RecordFrames(data, records[0].commit_log_offset if records else 0, positions)
    columns = MessageColumns.shared(frames)
    assert MessageColumns.shared(frames) is columns
    assert columns.topics().to_pylist() == [record.topic_bytes for record in records]
    some = frames.take(np.arange(len(frames))[1:])
    assert MessageColumns.shared(some).topics().to_pylist() == columns.topics().to_pylist()[1:]


def encode_item(item, total_size=0):
    head = struct.pack(">iiiii", total_size, 0, 0, item.flag, len(item.body))
    return head + item.body + struct.pack(">h", len(item.properties_raw)) + item.properties_raw


ITEMS = [
    InnerItem(0, b"first", b"TAGS\x01a\x02"),
    InnerItem(-7, b"", b""),
    InnerItem(2**31 - 1, b"\xff" * 20, b"k\x01v"),
]
BODY = b"".join(map(encode_item, ITEMS))


@pytest.mark.parametrize(
    ("sys_flag", "answer"),
    [(0xC0, True), (0xC1, True), (0x40, False), (0x80, False), (0, False), (-1, True)],
)
def test_an_inner_batch_has_both_bits(sys_flag, answer):
    assert is_inner_batch(sys_flag) is answer


def test_splits_a_body():
    assert split_inner_batch(BODY) == ITEMS
    assert split_inner_batch(b"") == []


def test_sizes_of_items_are_ignored_as_in_rocketmq():
    assert split_inner_batch(encode_item(ITEMS[0], total_size=-99)) == ITEMS[:1]


def test_spans_are_positions_in_the_buffer():
    buf = np.frombuffer(b"before" + BODY + b"after", np.uint8)
    spans = inner_item_spans(buf, 6, 6 + len(BODY))
    assert spans.shape == (3, 5)
    assert spans[:, 0].tolist() == [item.flag for item in ITEMS]
    _, at, length, properties_at, properties_length = spans[0].tolist()
    assert buf[at : at + length].tobytes() == b"first"
    assert buf[properties_at : properties_at + properties_length].tobytes() == b"TAGS\x01a\x02"
    assert inner_item_spans(buf, 6, 6).shape == (0, 5)


def test_a_body_cut_off_anywhere_but_between_messages_is_an_error():
    whole = {0, len(encode_item(ITEMS[0])), len(encode_item(ITEMS[0]) + encode_item(ITEMS[1]))}
    for length in set(range(len(BODY))) - whole:
        with pytest.raises(CorruptBodyError):
            split_inner_batch(BODY[:length])


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 6])
def test_a_wrong_body_length_is_an_error(length):
    body = encode_item(ITEMS[0])
    damaged = body[:16] + struct.pack(">i", length) + body[20:]
    with pytest.raises(CorruptBodyError, match="inner message 0 at byte 0"):
        split_inner_batch(damaged)


@pytest.mark.parametrize("length", [-1, -(2**15), 2**15 - 1])
def test_a_wrong_properties_length_is_an_error(length):
    body = encode_item(ITEMS[1])
    with pytest.raises(CorruptBodyError, match=f"inner message 3 .* properties length {length}"):
        split_inner_batch(BODY + body[:-2] + struct.pack(">h", length))


@given(st.binary(max_size=200))
def test_any_bytes_are_split_or_refused(body):
    try:
        items = split_inner_batch(body)
    except CorruptBodyError:
        return
    assert sum(len(encode_item(item)) for item in items) == len(body)


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


@settings(max_examples=examples(40), deadline=None)
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
    items = pack_items(TO_PACK)
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
    body, flags = pack_items(TO_PACK), BATCH
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
    body = pack_items(TO_PACK)
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
