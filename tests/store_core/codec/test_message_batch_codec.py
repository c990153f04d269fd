from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store_core.codec.compression import CorruptBodyError, deflate
from store_core.codec.message_batch_codec import (
    MessageColumns,
    message_schema,
    timestamp_column,
)
from store_core.codec.message_codec import body_crc
from store_core.codec.record_crcs import body_crc_failures
from store_core.codec.record_frames import RecordFrames
from store_core.layout.message import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from store_core.message import messages_from_record
from tests.store_core.codec.record_strategies import place_records, record_lists, time_ms

MIN_MS, MAX_MS = -62135596800000, 253402300799999
TIMES = ("born_timestamp", "store_timestamp")
BASES = st.sampled_from([0, 2**40])


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
    """Return what a column must have for a message of the scalar codec."""
    value = getattr(message, name)
    if name in TIMES:
        return value * 1000 if MIN_MS <= value <= MAX_MS else None
    return value


def without_unwrapping(record):
    """Return the record's own message, its body as stored."""
    sys_flag = record.sys_flag & ~(INNER_BATCH_FLAG | NEED_UNWRAP_FLAG)
    plain = type(record)(**{**vars(record), "sys_flag": sys_flag})
    (message,) = messages_from_record(plain, "", inflate_body=False)
    message.sys_flag = record.sys_flag
    return message, plain


@settings(max_examples=40, deadline=None)
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


@settings(max_examples=100, deadline=None)
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
