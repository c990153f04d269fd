# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.codec.message_codec import decode_message, encode_message, verify_property_crc
from store_core.codec.record_encoder import encode_records, patch_record, reserve_property_crc
from tests.store_core.codec.record_strategies import host, int4, int8, property_bytes

STORE_HOST = bytes([192, 168, 7, 8, 0, 0, 42, 159])
TYPES = {
    "topic": pa.binary(),
    "body": pa.binary(),
    "properties_raw": pa.binary(),
    "queue_id": pa.int32(),
    "flag": pa.int32(),
    "sys_flag": pa.int32(),
    "born_timestamp": pa.int64(),
    "born_host": pa.binary(),
    "store_host": pa.binary(),
    "reconsume_times": pa.int32(),
    "prepared_transaction_offset": pa.int64(),
}
_crc_entries = st.builds(
    lambda before, value, after: before + b"__CRC32#\1" + value + after,
    property_bytes,
    st.binary(max_size=12),
    st.sampled_from([b"", b"\2", b"\2a\1b", b"\2a\1b\2"]),
)
row = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([b"", b"T", b"\xff", b"x" * 127, b"y" * 128, b"z" * 300]),
        "body": st.binary(max_size=40),
        "properties_raw": property_bytes | _crc_entries,
        "queue_id": int4,
        "flag": int4,
        "sys_flag": int4,
        "born_timestamp": int8,
        "born_host": host.filter(lambda h: len(h) in (8, 20)),
        "store_host": host.filter(lambda h: len(h) in (8, 20)),
        "reconsume_times": int4,
        "prepared_transaction_offset": int8,
    }
)
place = st.tuples(int8, int8, int8)
rows_and_places = st.lists(st.tuples(row, place), max_size=8)


def batch_of(rows, names=tuple(TYPES)):
    return pa.record_batch({n: pa.array([r[n] for r in rows], TYPES[n]) for n in names})


def scalar(fields, queue_offset, commit_log_offset, store_timestamp):
    return encode_message(
        **fields,
        queue_offset=queue_offset,
        commit_log_offset=commit_log_offset,
        store_timestamp=store_timestamp,
    )


def records_of(encoded):
    return [
        encoded.block[a : a + n].tobytes()
        for a, n in zip(encoded.starts.tolist(), encoded.sizes.tolist())
    ]


def numbers(values):
    return np.array(values, np.int64).reshape(-1)


@given(rows_and_places, st.integers(0, 3))
def test_equals_the_scalar_encoder(rows, skipped):
    fields, places = [r for r, _ in rows], [p for _, p in rows]
    encoded = encode_records(batch_of(fields).slice(skipped), store_host=STORE_HOST)
    fields, places = fields[skipped:], places[skipped:]
    assert records_of(encoded) == [scalar(f, 0, 0, 0) for f in fields]
    encoded.patch(*(numbers([p[i] for p in places]) for i in range(3)))
    expected = [scalar(f, *p) for f, p in zip(fields, places)]
    assert records_of(encoded) == expected
    assert encoded.block.tobytes() == b"".join(expected)
    assert encoded.body_crc.tolist() == [
        decode_message(r, 0, p[1], "").body_crc for r, p in zip(expected, places)
    ]


@pytest.mark.parametrize("before", range(1, 8))
def test_columns_may_lie_anywhere_in_memory(before):
    row = {**dict.fromkeys(TYPES, 5), "topic": b"T", "body": b"b", "properties_raw": b"a\1b\2"}
    row.update(born_host=bytes(8), store_host=bytes(20))
    batch, sink = batch_of([row, row]), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    received = pa.py_buffer(bytes(before) + sink.getvalue().to_pybytes()).slice(before)
    (moved,) = pa.ipc.open_stream(received)
    assert moved.column("body").buffers()[1].address % 8
    encoded = encode_records(moved, store_host=STORE_HOST)
    assert records_of(encoded) == records_of(encode_records(batch, store_host=STORE_HOST))


@given(rows_and_places)
def test_the_property_crc_equals_that_of_single_records(rows):
    fields, places = [r for r, _ in rows], [p for _, p in rows]
    encoded = encode_records(batch_of(fields), store_host=STORE_HOST, property_crc=True)
    encoded.patch(*(numbers([p[i] for p in places]) for i in range(3)))
    for record, values, at in zip(records_of(encoded), fields, places):
        properties = reserve_property_crc(values["properties_raw"])
        single = bytearray(scalar({**values, "properties_raw": properties}, 0, 0, 0))
        patch_record(single, *at, property_crc=True)
        assert record == single
        assert verify_property_crc(record) is True


def test_some_rows_of_a_block_are_patched():
    fields = {"topic": b"T", "body": b"b", "properties_raw": b""}
    names = tuple(fields)
    encoded = encode_records(batch_of([fields] * 3, names), store_host=STORE_HOST)
    encoded.patch(numbers([7, 8]), numbers([100, 200]), 5, first=1)
    decoded = [decode_message(r, 0, o, "") for r, o in zip(records_of(encoded), (0, 100, 200))]
    assert [d.queue_offset for d in decoded] == [0, 7, 8]
    assert [d.store_timestamp for d in decoded] == [0, 5, 5]
    assert encoded.rows(1, 3).tobytes() == b"".join(records_of(encoded)[1:])
    assert encoded.rows(2, 2).tobytes() == b""


def test_missing_columns_are_zero_and_hosts_the_stores():
    batch = pa.record_batch({"topic": ["T"], "body": [b"x"], "properties_raw": [b""]})
    (record,) = records_of(encode_records(batch, store_host=STORE_HOST))
    decoded = decode_message(record, 0, 0, "")
    assert (decoded.born_host, decoded.store_host) == (STORE_HOST, STORE_HOST)
    assert (decoded.queue_id, decoded.sys_flag, decoded.born_timestamp) == (0, 0, 0)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topic": pa.array([b"T", None])}, "topic is null in row 1"),
        ({"queue_id": pa.array([None, 1])}, "queue_id is null in row 0"),
        ({"born_host": pa.array([bytes(8), bytes(7)])}, "born_host of row 1 has 7 bytes"),
        ({"topic": pa.array([b"T", b"t" * 32768])}, "topic of row 1 has 32768 bytes"),
        ({"properties_raw": pa.array([b"p" * 32768, b""])}, "properties_raw of row 0"),
    ],
)
def test_what_cannot_be_encoded_is_named(change, text):
    columns = {"topic": [b"T", b"T"], "body": [b"", b""], "properties_raw": [b"", b""], **change}
    with pytest.raises(ValueError, match=text):
        encode_records(pa.record_batch(columns), store_host=STORE_HOST)


def test_properties_and_their_crc_fit_together():
    batch = pa.record_batch({"topic": [b"T"], "body": [b""], "properties_raw": [b"p" * 32747]})
    with pytest.raises(ValueError, match="has 32768 bytes"):
        encode_records(batch, store_host=STORE_HOST, property_crc=True)
    assert len(encode_records(batch, store_host=STORE_HOST)) == 1


@given(row, place)
def test_a_single_record_is_patched(fields, at):
    record = bytearray(scalar(fields, 1, 2, 3))
    patch_record(record, *at)
    assert record == scalar(fields, *at)


def test_the_property_crc_covers_place_and_time():
    fields = {
        "topic": b"T",
        "body": b"x",
        "properties_raw": reserve_property_crc(b"a\1b"),
        "queue_id": 0,
        "born_timestamp": 1,
        "born_host": bytes(20),
        "store_host": bytes(8),
    }
    record = bytearray(scalar(fields, 0, 0, 0))
    patch_record(record, 1, 2, 3, property_crc=True)
    assert verify_property_crc(bytes(record)) is True
    for position in (27, 35, 75):  # last bytes of queue offset, physical offset, store time
        changed = bytearray(record)
        changed[position] ^= 1
        assert verify_property_crc(bytes(changed)) is False


@pytest.mark.parametrize(
    ("given_bytes", "kept"),
    [
        (b"", b""),
        (b"a\1b", b"a\1b\2"),
        (b"a\1b\2", b"a\1b\2"),
        (b"__CRC32#\0017\2a\1b", b"a\1b\2"),
        (b"a\1b\2__CRC32#\0017", b"a\1b\2"),
        (b"x__CRC32#\0017\2", b"x__CRC32#\0017\2"),
        (b"__CRC32#\1\2__CRC32#\0017\2", b""),
    ],
)
def test_room_for_the_property_crc(given_bytes, kept):
    reserved = reserve_property_crc(given_bytes)
    assert reserved == kept + b"__CRC32#\0010000000000\2"
