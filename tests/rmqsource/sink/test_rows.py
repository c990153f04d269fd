# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqsource.sink.errors import SinkRowError
from store_core.codec.compression import deflate, inflate
from store_core.codec.java_string import string_hash
from store_core.codec.message_batch_codec import MessageColumns
from store_core.codec.message_codec import split_keys, string_to_properties
from store_core.codec.message_id import parse_host
from store_core.codec.record_encoder import encode_records
from store_core.codec.record_frames import RecordFrames
from store_core.layout import COMPRESSION_LZ4
from store_core.staged_commit.staged_part import ROWS_SUFFIX
from store_core.staged_commit.staged_part_writer import StagedPartWriter
from tests.rmqsource.sink.support import (
    NOW_MS,
    STORE_HOST,
    batch_of,
    convert,
    converter_of,
    records_of,
)

text = st.text(st.characters(blacklist_characters="\1\2", blacklist_categories=["Cs"]), max_size=6)
filled = text.filter(bool)
words = st.lists(st.text("abü", min_size=1, max_size=3), min_size=1, max_size=3)
row = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["A", "B", "C-1"]),
        "body": st.binary(min_size=1, max_size=20),
        "keys": st.none() | words,
        "tags": st.none() | text,
        "properties": st.none()
        | st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "n", "ü"]) | filled, text),
        "unique_key": st.none() | filled,
        "sharding_key": st.none() | filled,
        "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
        "queue_id": st.none() | st.integers(0, 9),
    }
)


def model_properties(values):
    """Compute the properties of a row by the rules, in Python."""
    found = dict((values["properties"] or {}).items())
    named = {
        "KEYS": None if values["keys"] is None else " ".join(values["keys"]),
        "TAGS": values["tags"],
        "UNIQ_KEY": values["unique_key"],
        "__SHARDINGKEY": values["sharding_key"],
    }
    found.update({name: value for name, value in named.items() if value is not None})
    return {name: value for name, value in found.items() if name and value}


@given(st.lists(row, min_size=1, max_size=6), st.integers(0, 2))
def test_rows_are_converted_as_the_rules_say(rows, skipped):
    columns = {name: [r[name] for r in rows] for name in rows[0]}
    columns["properties"] = [p if p is None else list(p.items()) for p in columns["properties"]]
    batch = batch_of(**columns).slice(min(skipped, len(rows) - 1))
    records = convert(batch)
    for record, values in zip(records, rows[len(rows) - len(records) :]):
        assert record.topic_bytes.decode() == values["topic"]
        assert record.body == values["body"]
        assert record.flag == (values["flag"] or 0)
        properties = string_to_properties(record.properties_raw)
        wanted = model_properties(values)
        if "UNIQ_KEY" not in wanted:
            assert len(properties.pop("UNIQ_KEY")) == 32
        assert properties == wanted
        if values["queue_id"] is not None:
            assert record.queue_id == values["queue_id"]
        elif values["sharding_key"] is not None:
            assert record.queue_id == abs(string_hash(values["sharding_key"])) % 4
        assert 0 <= record.queue_id < 10
    assert len(records) == batch.num_rows


def converted_without_maps(rows, bad_rows):
    """Return rows with all properties known, some delayed; None if none is left."""
    columns = {name: [r[name] for r in rows] for name in rows[0] if name != "properties"}
    columns["delay_level"] = [r["flag"] and abs(r["flag"]) % 19 for r in rows]
    if bad_rows == "drop":
        columns["body"][0] = None
    return converter_of(batch_of(**columns), badRows=bad_rows).convert(batch_of(**columns))


@given(st.lists(row, min_size=1, max_size=6), st.sampled_from(["fail", "drop"]))
def test_known_properties_are_those_that_a_decoder_finds(rows, bad_rows):
    converted = converted_without_maps(rows, bad_rows)
    if converted is None:
        return
    encoded = encode_records(converted.batch, store_host=STORE_HOST)
    encoded.patch(np.zeros_like(encoded.starts), encoded.starts, NOW_MS)
    frames = RecordFrames(encoded.block, 0, encoded.starts)
    decoded = MessageColumns(frames)
    known = MessageColumns(frames, known_properties=converted.properties)
    for name in (*converted.properties, "DELAY", "INNER_NUM"):
        assert known.property_values(name).equals(decoded.property_values(name)), name
        assert known.has_property(name) == decoded.has_property(name)
    names = {name for r in records_of(converted) for name in string_to_properties(r.properties_raw)}
    assert names <= set(converted.properties)


@given(st.lists(row, min_size=1, max_size=6), st.sampled_from(["fail", "drop"]))
def test_what_is_known_of_rows_stages_what_their_records_say(rows, bad_rows):
    converted = converted_without_maps(rows, bad_rows)
    if converted is None:
        return
    batch = converted.batch
    # A task keeps no row's transaction; the index uses it nevertheless.
    flags = pa.array([(0, 4, 8, 12)[n % 4] for n in range(batch.num_rows)], pa.int32())
    batch = batch.set_column(batch.schema.get_field_index("sys_flag"), "sys_flag", flags)
    converted = converted._replace(batch=batch)
    assert converted.properties is not None
    known = staged_rows(converted, converted.properties)
    assert known.equals(staged_rows(converted, None))


def staged_rows(converted, properties):
    """Return a task's report of its records to the commit."""
    with TemporaryDirectory() as directory:
        levels = [1000 * level for level in range(1, 19)]
        writer = StagedPartWriter(directory, "part", levels, with_tags=True)
        encoded = encode_records(converted.batch, store_host=STORE_HOST)
        queue_id = converted.queue_id
        writer.append(encoded, converted.topics, converted.topic_code, queue_id, properties)
        writer.finish()
        with pa.ipc.open_stream(Path(directory, f"part{ROWS_SUFFIX}")) as staged:
            return staged.read_all()


RAW = b"b\x011\x02KEYS\x01k1  k2\x02b\x012\x02empty\x01\x02TAGS\x01t\x02x"


def test_exact_bytes_stay_exact_where_the_columns_agree():
    batch = batch_of(
        topic=["A"] * 4,
        body=[b"x"] * 4,
        properties_raw=[RAW, RAW, b"", None],
        keys=[["k1", "k2"], None, None, ["k"]],
        tags=["t", None, None, None],
        properties=[[("b", "2")], [], [], [("b", "9")]],
    )
    records = convert(batch)
    assert [r.properties_raw for r in records[:3]] == [RAW, RAW, b""]
    made = string_to_properties(records[3].properties_raw)
    assert made.pop("UNIQ_KEY")
    assert made == {"b": "9", "KEYS": "k"}


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("tags", "u", {"TAGS": "u"}),
        ("keys", ["k2"], {"KEYS": "k2"}),
        ("unique_key", "id", {"UNIQ_KEY": "id"}),
        ("delay_level", 3, {"DELAY": "3", "REAL_TOPIC": "A", "REAL_QID": "0"}),
    ],
)
def test_a_column_that_differs_wins_over_exact_bytes(column, value, expected):
    batch = batch_of(topic=["A"], body=[b"x"], properties_raw=[RAW], **{column: [value]})
    (record,) = convert(batch)
    properties = string_to_properties(record.properties_raw)
    assert properties == {"b": "2", "KEYS": "k1  k2", "TAGS": "t", **expected}


def test_an_empty_value_removes_a_property():
    batch = batch_of(topic=["A"], body=[b"x"], properties_raw=[RAW], tags=[""], keys=[[]])
    assert string_to_properties(convert(batch)[0].properties_raw) == {"b": "2"}


def test_round_robin_goes_on_over_batches_and_begins_elsewhere_in_each_task():
    batch = batch_of(topic=["A", "B", "A"], body=[b"x"] * 3)
    converter = converter_of(batch, partition_id=1, topic_queues={"B": 2})
    seen = [r.queue_id for _ in range(3) for r in records_of(converter.convert(batch))]
    assert seen == [1, 1, 2, 3, 0, 0, 1, 1, 2]
    assert converter.topics == {"A": 4, "B": 2}


def test_given_queues_are_needed_in_the_topic():
    batch = batch_of(topic=["A", "A"], body=[b"x"] * 2, queue_id=[6, None])
    converter = converter_of(batch)
    converter.convert(batch)
    assert converter.topics == {"A": 7}


def test_delayed_rows_wait_as_a_broker_lets_them_wait():
    batch = batch_of(
        topic=["A", "B", "A"], body=[b"x"] * 3, queue_id=[2, 5, 1], delay_level=[None, 4, 0]
    )
    converter = converter_of(batch)
    plain, delayed, zero = records_of(converter.convert(batch))
    assert (delayed.topic_bytes, delayed.queue_id) == (b"SCHEDULE_TOPIC_XXXX", 3)
    properties = string_to_properties(delayed.properties_raw)
    assert properties.pop("UNIQ_KEY")
    assert properties == {"DELAY": "4", "REAL_TOPIC": "B", "REAL_QID": "5"}
    for record, queue_id in ((plain, 2), (zero, 1)):
        assert (record.topic_bytes, record.queue_id) == (b"A", queue_id)
        assert set(string_to_properties(record.properties_raw)) == {"UNIQ_KEY"}
    assert converter.delay_levels == {4}
    assert converter.topics == {"A": 3, "B": 6}


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({}, 0x001),
        ({"compatibility": 5}, 0x301),
        ({"compatibility": 5, "compression": "lz4"}, 0x101),
        ({"compatibility": 5, "compression": "zstd"}, 0x201),
    ],
)
def test_large_bodies_are_compressed(options, bits):
    large = b"abc " * 2000
    records = convert(batch_of(topic=["A"] * 3, body=[b"s", large, large[:4096]]), **options)
    assert [r.sys_flag for r in records] == [0, bits, bits]
    assert records[0].body == b"s"
    assert inflate(records[1].body, records[1].sys_flag) == large


def test_how_large_a_body_is_that_is_compressed_can_be_set():
    bodies = [b"a" * 99, b"a" * 100]
    records = convert(batch_of(topic=["A"] * 2, body=bodies), compressBodyOver="100")
    assert [r.sys_flag for r in records] == [0, 1]


def test_bodies_can_stay_as_they_are():
    large = b"abc " * 2000
    records = convert(batch_of(topic=["A"], body=[large]), compression="none")
    assert (records[0].body, records[0].sys_flag) == (large, 0)


def test_raw_bodies_keep_their_bits_and_decoded_ones_lose_them():
    packed = zlib.compress(b"hello")
    batch = batch_of(
        topic=["A"] * 4,
        body=[packed, b"hello", packed, deflate(b"hello", COMPRESSION_LZ4)],
        sys_flag=[0x301 | 8, 0x301, 0x301, 0x101],
        body_crc=[None, None, (zlib.crc32(packed) & 0x7FFFFFFF) ^ 1, None],
    )
    records = convert(batch, compatibility=5)
    assert [r.sys_flag for r in records] == [0x301, 0, 0, 0x101]


def test_missing_values_have_defaults():
    batch = batch_of(
        topic=["A", None],
        body=[b"x", b"y"],
        born_timestamp=[None, 5_123_456],
        born_host=["[2001:db8::17]:80", None],
        reconsume_times=[3, None],
    )
    one, two = convert(batch, topic="D")
    assert (one.topic_bytes, two.topic_bytes) == (b"A", b"D")
    assert (one.born_timestamp, two.born_timestamp) == (NOW_MS, 5123)
    assert one.born_host == parse_host("[2001:db8::17]:80")
    assert len(two.born_host) == 8
    assert (one.reconsume_times, two.reconsume_times) == (3, 0)


BAD = [
    ("topic", None, "is null"),
    ("topic", "a b", "is not a topic name"),
    ("topic", "", "is not a topic name"),
    ("topic", "t" * 128, "at most 127"),
    ("topic", "%RETRY%g", "kind retry"),
    ("topic", "SCHEDULE_TOPIC_XXXX", "kind delay"),
    ("body", None, "is null"),
    ("body", b"", "is empty, .* set compatibility to 5"),
    ("body", b"x" * 4_194_305, "4194305 bytes, but at most 4194304"),
    ("queue_id", -1, "is -1; it must be 0 to"),
    ("queue_id", 65536, "is 65536"),
    ("delay_level", 19, "must be 0 to 18"),
    ("delay_level", -1, "must be 0 to 18"),
    ("tags", "a\2b", "separate properties"),
    ("keys", ["a", "b\1"], "separate properties"),
    ("unique_key", "\2", "separate properties"),
    ("properties", [("a\1", "b")], "a name holds"),
    ("properties", [("a", "b\1")], "a value holds"),
    ("properties", [("a", "b" * 32768)], "at most 32767"),
    ("born_host", "nowhere", "expected a host"),
    ("sys_flag", 0x101, "compatibility to 5"),
]


@pytest.mark.parametrize(("column", "value", "reason"), BAD)
def test_bad_rows_fail_or_are_dropped(column, value, reason):
    good = {
        "topic": "A",
        "body": deflate(b"b", COMPRESSION_LZ4),
        "queue_id": 0,
        "delay_level": None,
        "tags": "t",
        "keys": ["k"],
        "unique_key": "u",
        "properties": [("n", "v")],
        "born_host": None,
        "sys_flag": 0,
    }
    columns = {name: [v, v, v] for name, v in good.items()}
    columns[column] = [good[column], value, good[column]]
    batch = batch_of(**columns)
    with pytest.raises(SinkRowError, match=reason) as caught:
        convert(batch, compression="none")
    assert caught.value.column == column
    assert "topic=" in caught.value.row
    assert len(str(caught.value)) < 2000
    converter = converter_of(batch, badRows="drop", compression="none")
    assert len(records_of(converter.convert(batch))) == 2
    assert converter.bad_rows.dropped == {column: 1}


def test_a_batch_of_bad_rows_only_leaves_nothing():
    batch = batch_of(topic=["a b"], body=[b"x"])
    assert converter_of(batch, badRows="drop").convert(batch) is None
    too_long = batch_of(topic=["A"], body=[b"x" * 500])
    assert converter_of(too_long, badRows="drop", segment_bytes=512).convert(too_long) is None


def test_more_is_allowed_where_it_is_asked_for():
    batch = batch_of(topic=["%RETRY%g", "t" * 200], body=[b"", b""])
    assert len(convert(batch, systemTopics="true", compatibility=5)) == 2
    separators = batch_of(topic=["A"], body=[b"x"], properties=[[("a", "b\1c")]])
    (record,) = convert(separators, compatibility=5)
    assert string_to_properties(record.properties_raw)["a"] == "b\1c"


def test_other_types_of_columns_are_taken():
    batch = pa.record_batch(
        {
            "topic": pa.array(["A"], pa.large_string()),
            "body": pa.array(["text"]),
            "keys": pa.array(["k1 k2"]),
            "queue_id": pa.array([3], pa.int64()),
            "flag": pa.array([2], pa.int8()),
        }
    )
    (record,) = convert(batch)
    assert (record.body, record.queue_id, record.flag) == (b"text", 3, 2)
    assert split_keys(string_to_properties(record.properties_raw)["KEYS"]) == ["k1", "k2"]
