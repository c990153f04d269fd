# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pickle
import re
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rmqsource.errors import SourceOptionError
from rmqsource.options.source_options import parse_options
from rmqsource.scan.predicate import (
    ANY,
    IntRange,
    ScanPredicate,
    find_key_files,
    from_options,
    load_keys,
    with_filters,
)
from rmqsource.tables import TIMESTAMP_MAX_MS, TIMESTAMP_MIN_MS
from tests.examples import examples
from tests.golden_store import golden
from tests.rmqsource.reading import parsed, places, read_rows

datasource = pytest.importorskip("pyspark.sql.datasource")
STORES = ["classic-5x", "batch-5x", "cluster-5x"]
WANTED = ("commit_log_offset", "queue_offset", "topic", "keys", "unique_key")


if not hasattr(datasource, "EqualTo"):
    pytest.skip("Spark 4.0 has no filters", allow_module_level=True)


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


ID = "7F" * 16


def at(micros):
    return EPOCH + timedelta(microseconds=micros)


def options(**given):
    return from_options(parse_options({"path": "/s", **given}))


def pushed(*filters, predicate=ScanPredicate(), table="messages"):  # noqa: B008 (frozen)
    return with_filters(predicate, filters, table)


# -- the oracle: the truth of a predicate and of a filter for one row -----------------------------


def matches_row(predicate, row):
    if row["topic"] is None:  # the row of a gap
        return not predicate.drops_gaps
    pattern = predicate.topic_pattern
    sets = (
        (predicate.topics, row["topic"]),
        (predicate.queue_ids, row["queue_id"]),
        (predicate.unique_keys, row["unique_key"]),
        (predicate.message_ids, row["message_id"]),
        (predicate.tags, row["tags"]),
        (predicate.key_equals, row["key"]),
    )
    ranges = (
        (predicate.queue_id_range, row["queue_id"]),
        (predicate.queue_offset_range, row["queue_offset"]),
        (predicate.commit_log_offset_range, row["commit_log_offset"]),
        (predicate.store_time_ms, row["store_time_ms"]),
    )
    sets += (
        (predicate.queue_offsets, row["queue_offset"]),
        (predicate.commit_log_offsets, row["commit_log_offset"]),
        (predicate.store_times_ms, row["store_time_ms"]),
    )
    return (
        all(allowed is None or value in allowed for allowed, value in sets)
        and all(allowed.contains(value) for allowed, value in ranges)
        and (pattern is None or re.fullmatch(pattern, row["topic"]) is not None)
        and (predicate.keys is None or bool(predicate.keys & set(row["keys"])))
    )


def sql_value(row, column):
    if column != "store_timestamp":
        return row[column]
    ms = row["store_time_ms"]
    fits = ms is not None and TIMESTAMP_MIN_MS <= ms <= TIMESTAMP_MAX_MS
    return at(ms * 1000) if fits else None


COMPARE = {
    EqualTo: lambda a, b: a == b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
}


def keeps(spark_filter, row):
    """Whether WHERE keeps the row: the filter is true, neither false nor null."""
    value = sql_value(row, spark_filter.attribute[0].lower())
    if isinstance(spark_filter, IsNotNull):
        return value is not None
    if isinstance(spark_filter, IsNull):
        return value is None
    if value is None:
        return False
    if isinstance(spark_filter, In):
        return any(v is not None and v == value for v in spark_filter.value)
    wanted = spark_filter.value
    return wanted is not None and COMPARE[type(spark_filter)](value, wanted)


INTS = st.integers(-2, 6) | st.sampled_from([-(2**31), 2**31 - 1, 2**31, -(2**63), 2**63 - 1])


MILLIS = st.integers(-3, 4) | st.sampled_from(
    [TIMESTAMP_MIN_MS - 1, TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS, TIMESTAMP_MAX_MS + 1, 2**63 - 1]
)


WORDS = st.sampled_from(["a", "b", "A", "", "é", ID])


INSTANTS = st.builds(
    lambda micros, hours: at(micros).astimezone(timezone(timedelta(hours=hours))),
    st.integers(-3500, 4500) | st.integers(-4, 4).map(lambda ms: ms * 1000),
    st.integers(-12, 12),
)


FAR = st.sampled_from([at(TIMESTAMP_MIN_MS * 1000), at(TIMESTAMP_MAX_MS * 1000 + 999)])


VALUES = {
    **dict.fromkeys(("topic", "unique_key", "message_id", "tags", "key", "store"), WORDS),
    **dict.fromkeys(
        ("queue_id", "queue_offset", "commit_log_offset", "flag"),
        INTS | INTS.map(lambda i: i * 2**40),
    ),
    "store_timestamp": INSTANTS | FAR,
}


@st.composite
def filters(draw):
    column = draw(st.sampled_from(sorted(VALUES)))
    path = (draw(st.sampled_from([column, column.upper(), column.title()])),)
    value = st.none() | VALUES[column]
    kind = draw(st.sampled_from([*COMPARE, EqualTo, In, In, IsNotNull, IsNull]))
    if kind in (IsNotNull, IsNull):
        return kind(path)
    return kind(path, tuple(draw(st.lists(value, max_size=4))) if kind is In else draw(value))


ROWS = st.fixed_dictionaries(
    {
        "topic": WORDS,
        "queue_id": st.integers(-1, 5),
        "queue_offset": INTS,
        "commit_log_offset": INTS,
        "flag": st.integers(-1, 5),
        "store": WORDS,
        "message_id": st.sampled_from([ID, "AB" * 28]),
        "unique_key": st.none() | WORDS,
        "tags": st.none() | WORDS,
        "key": WORDS,
        "keys": st.lists(WORDS, max_size=2),
        "store_time_ms": MILLIS,
    }
)


GAP = {
    **dict.fromkeys(("topic", "queue_id", "queue_offset", "commit_log_offset", "flag", "store")),
    **dict.fromkeys(("message_id", "unique_key", "tags", "key", "keys", "store_time_ms")),
}


BASES = st.sampled_from(
    [
        ScanPredicate(),
        options(topic="a,b", queueId="0,1,2", startingTimestamp="-1"),
        options(topicPattern="[ab]", endingTimestamp="3", keys="a,b"),
        options(uniqueKeys="a,b", tags="a || A", messageIds=ID),
    ]
)


@given(BASES, st.lists(filters(), max_size=4), st.lists(ROWS, min_size=1, max_size=8))
@settings(max_examples=examples(600), deadline=None)
@example(ScanPredicate(), [In(("queue_offset",), (1, 3))], [])
def test_predicate_and_residual_equal_the_filters(base, wanted, rows):
    predicate, residual = with_filters(base, wanted, "keys")
    assert all(any(r is f for f in wanted) for r in residual)
    for row in [*rows, GAP]:
        asked = matches_row(base, row) and all(keeps(f, row) for f in wanted)
        answered = matches_row(predicate, row) and all(keeps(f, row) for f in residual)
        assert answered == asked
        if predicate.is_empty and row is not GAP:
            assert not asked
    assert pickle.loads(pickle.dumps(predicate)) == predicate
    assert isinstance(hash(predicate), int)
    for bounds, bits in (
        (predicate.queue_id_range, 31),
        (predicate.queue_offset_range, 63),
        (predicate.commit_log_offset_range, 63),
        (predicate.store_time_ms, 63),
    ):
        assert all(b is None or -(2**bits) <= b < 2**bits for b in bounds)


# -- accepted filters, by name --------------------------------------------------------------------


def test_options_become_fields():
    predicate = options(
        topic="a", queueId="1", startingTimestamp="5", keys="k", endingOffsets='{"a":{"1":7}}'
    )
    assert predicate.topics == {"a"}
    assert predicate.queue_ids == {1}
    assert predicate.store_time_ms == IntRange(5, TIMESTAMP_MAX_MS + 1)
    assert predicate.ending_offsets.offset_of("a", 1) == 7
    assert predicate.keys == {"k"}
    assert not predicate.drops_gaps
    assert options() == ScanPredicate()
    assert options(startingTimestamp="5", endingTimestamp="5").is_empty


def test_times_that_spark_cannot_hold_are_outside_of_any_bound():
    whole = IntRange(TIMESTAMP_MIN_MS, TIMESTAMP_MAX_MS + 1)
    assert options(startingTimestamp=str(-(2**63))).store_time_ms == whole
    assert options(endingTimestamp=str(2**63 - 1)).store_time_ms == whole
    assert options(startingTimestamp=str(2**63 - 1)).is_empty


@pytest.mark.parametrize(
    ("spark_filter", "field", "value"),
    [
        (EqualTo(("Topic",), "a"), "topics", {"a"}),
        (In(("tags",), ("a", None, "b")), "tags", {"a", "b"}),
        (EqualTo(("unique_key",), "u"), "unique_keys", {"u"}),
        (In(("message_id",), (ID, ID.lower(), "x")), "message_ids", {ID}),
        (EqualTo(("key",), "k"), "key_equals", {"k"}),
        (EqualTo(("queue_id",), 3), "queue_ids", {3}),
        (In(("queue_id",), (3, 9, None, 2**40)), "queue_ids", {3, 9}),
        (LessThan(("queue_id",), 2**40), "queue_id_range", ANY),
        (GreaterThan(("queue_offset",), 5), "queue_offset_range", (6, None)),
        (LessThanOrEqual(("commit_log_offset",), 5), "commit_log_offset_range", (None, 6)),
        (GreaterThan(("queue_offset",), 2**63 - 1), "queue_offset_range", (0, 0)),
        (LessThanOrEqual(("queue_offset",), 2**63 - 1), "queue_offset_range", ANY),
        (In(("queue_offset",), (5, 4, None, 6)), "queue_offset_range", (4, 7)),
        (EqualTo(("store_timestamp",), at(5000)), "store_time_ms", (5, 6)),
        (EqualTo(("store_timestamp",), at(5001)), "store_time_ms", (0, 0)),
        (GreaterThan(("store_timestamp",), at(500)), "store_time_ms", (1, TIMESTAMP_MAX_MS + 1)),
        (LessThan(("store_timestamp",), at(500)), "store_time_ms", (TIMESTAMP_MIN_MS, 1)),
        (LessThan(("store_timestamp",), at(0)), "store_time_ms", (TIMESTAMP_MIN_MS, 0)),
    ],
    # Workers of a parallel run must agree on names, but sets have another order in each process.
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_taken(spark_filter, field, value):
    predicate, residual = pushed(spark_filter, table="keys")
    assert residual == []
    assert getattr(predicate, field) == value
    assert predicate.drops_gaps


@pytest.mark.parametrize(
    "spark_filter",
    [
        EqualNullSafe(("topic",), "a"),
        Not(EqualTo(("topic",), "a")),
        IsNull(("tags",)),
        IsNotNull(("tags",)),
        StringStartsWith(("topic",), "a"),
        LessThan(("topic",), "a"),
        EqualTo(("topic",), 3),
        EqualTo(("topic", "x"), "a"),
        EqualTo((), "a"),
        EqualTo(("queue_id",), True),
        EqualTo(("queue_id",), 1.0),
        EqualTo(("queue_offset",), "1"),
        EqualTo(("store_timestamp",), datetime(2026, 1, 1)),
        EqualTo(("store_timestamp",), date(2026, 1, 1)),
        EqualTo(("store_timestamp",), 5),
        EqualTo(("born_timestamp",), at(0)),
        EqualTo(("keys",), ["a"]),
        In(("topic",), ("a", 1)),
    ],
    ids=str,
)
def test_handed_back(spark_filter):
    predicate, residual = pushed(spark_filter)
    assert predicate == ScanPredicate()
    assert len(residual) == 1
    assert residual[0] is spark_filter


def test_scattered_in_is_a_range_and_a_set():
    predicate, residual = pushed(In(("commit_log_offset",), (9, None, 3, 2**70, 9)))
    assert predicate.commit_log_offset_range == (3, 10)
    assert predicate.commit_log_offsets == {3, 9}
    assert residual == []
    predicate, _ = pushed(In(("commit_log_offset",), (9, 7)), predicate=predicate)
    assert predicate.commit_log_offset_range == (7, 10)
    assert predicate.commit_log_offsets == {9}
    assert pushed(In(("commit_log_offset",), (4, 8)), predicate=predicate)[0].is_empty
    assert pushed(In(("queue_offset",), (-(2**70), 2**70)))[0].is_empty


def test_is_not_null_beside_a_taken_comparison():
    both = [IsNotNull(("tags",)), EqualTo(("tags",), "a")]
    assert pushed(*both)[1] == []
    other = [IsNotNull(("unique_key",)), EqualTo(("tags",), "a")]
    assert pushed(*other)[1] == other[:1]


def test_conjunctions_intersect():
    predicate, _ = pushed(EqualTo(("topic",), "b"), predicate=options(topic="a,b"))
    assert predicate.topics == {"b"}
    predicate, _ = pushed(EqualTo(("topic",), "c"), predicate=options(topic="a,b"))
    assert predicate.is_empty
    predicate, _ = pushed(In(("topic",), ("ax", "b")), predicate=options(topicPattern="a.*"))
    assert (predicate.topics, predicate.topic_pattern) == ({"ax"}, None)
    predicate, _ = pushed(GreaterThan(("queue_id",), 1), predicate=options(queueId="0,1,2"))
    assert (predicate.queue_ids, predicate.queue_id_range) == ({2}, ANY)
    low, high = GreaterThan(("queue_offset",), 5), LessThan(("queue_offset",), 6)
    assert pushed(low, high)[0].is_empty


def test_null_matches_nothing():
    assert pushed(EqualTo(("topic",), None))[0].is_empty
    assert pushed(LessThan(("queue_offset",), None))[0].is_empty
    assert pushed(In(("queue_id",), (None,)))[0].is_empty


def test_other_tables_take_nothing():
    spark_filter = EqualTo(("topic",), "a")
    for table in ("queues", "consume_queue", "plan"):
        assert pushed(spark_filter, table=table) == (ScanPredicate(), [spark_filter])


def key_rows(store):
    return read_rows(store.root, table="keys", mode="PERMISSIVE", **store.options)


def some_keys(store):
    """Return every third key of a store, and some that no message has."""
    keys = sorted({row["key"] for row in key_rows(store) if row["key"] is not None})
    assert len(keys) > 6
    return [*keys[::3], "no such key", "ключ"]


def write_text(path, keys):
    path.write_text("".join(f"{key}\n" for key in keys), "utf-8")


def write_parquet(path, keys, name="key"):
    pq.write_table(pa.table({name: pa.array(keys, pa.string())}), path)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("write", [write_text, write_parquet])
def test_messages_and_keys_are_those_of_the_keys(tmp_path, name, write):
    store, path = golden(name), tmp_path / "wanted"
    keys = some_keys(store)
    write(path, keys)
    options = {**store.options, "mode": "PERMISSIVE", "keysFrom": path}
    rows = read_rows(store.root, WANTED, **options)
    every = read_rows(store.root, WANTED, mode="PERMISSIVE", **store.options)
    held = {*keys}
    expected = [row for row in every if held & {*(row["keys"] or ()), row["unique_key"]}]
    assert expected
    assert sorted(places(rows)) == sorted(places(expected))
    found = read_rows(store.root, table="keys", **options)
    assert sorted((row["key"], *places([row])[0]) for row in found) == sorted(
        (row["key"], *places([row])[0]) for row in key_rows(store) if row["key"] in held
    )


def test_with_a_topic_and_another_filter(tmp_path):
    store, path = golden("classic-5x"), tmp_path / "wanted.txt"
    rows = [row for row in key_rows(store) if row["key"]]
    topic = rows[0]["topic"]
    write_text(path, {row["key"] for row in rows})
    options = {**store.options, "topic": topic, "keysFrom": path}
    found = read_rows(store.root, WANTED, **options)
    assert {row["topic"] for row in found} == {topic}
    one = rows[0]["key"]
    both = read_rows(store.root, table="keys", **options, where=f"key = '{one}'")
    assert both
    assert {row["key"] for row in both} == {one}


def test_a_directory_as_spark_writes_it(tmp_path):
    store = golden("classic-5x")
    keys = some_keys(store)
    directory = tmp_path / "wanted"
    directory.mkdir()
    write_parquet(directory / "part-0.parquet", keys[:4], "value")
    write_text(directory / "part-1.txt", keys[4:])
    (directory / "_SUCCESS").touch()
    (directory / ".part-0.crc").write_bytes(b"\0crc")
    text = tmp_path / "one"
    write_text(text, keys)
    rows = [
        read_rows(store.root, WANTED, **store.options, keysFrom=place)
        for place in (directory, text)
    ]
    assert rows[0] == rows[1] != []


@pytest.mark.parametrize("text", ["", "\n\n", "  \n"])
def test_no_key_matches_nothing(tmp_path, text):
    store, path = golden("classic-5x"), tmp_path / "none"
    path.write_text(text)
    assert read_rows(store.root, **store.options, keysFrom=path) == []
    assert read_rows(store.root, table="keys", **store.options, keysFrom=path) == []


def test_lines_may_end_as_on_windows_and_have_quotes_and_commas(tmp_path):
    path = tmp_path / "keys"
    path.write_bytes('\ufeffa,b\r\n"c\r\n d \r\n"e"'.encode())
    held = load_keys(find_key_files(str(path), ""))
    asked = pa.array(["a,b", '"c', "d", '"e"', "e", "a", ""])
    assert held.contains(asked).tolist() == [True, True, True, True, False, False, False]


def test_a_relative_place_is_that_of_the_driver(tmp_path, monkeypatch):
    write_text(tmp_path / "keys", ["a"])
    monkeypatch.chdir(tmp_path)
    found = pickle.loads(pickle.dumps(find_key_files("keys", str(Path.cwd()))))
    monkeypatch.chdir("/")
    assert len(load_keys(found)) == 1


def test_dictionaries_of_strings(tmp_path):
    path = tmp_path / "keys"
    pq.write_table(pa.table({"key": pa.array(["a", "b", "a", None]).dictionary_encode()}), path)
    held = load_keys(find_key_files(str(path), ""))
    assert held.contains(pa.array(["a", "b", "c"])).tolist() == [True, True, False]


def test_a_file_that_changes_after_planning_is_told(tmp_path):
    store, path = golden("classic-5x"), tmp_path / "keys"
    write_text(path, ["a"])
    options = {**store.options, "keysFrom": path}
    request_of = from_options(parsed(store.root, **options))
    write_text(path, ["a", "b"])
    with pytest.raises(SourceOptionError, match=r"keysFrom.*was changed since.*load again"):
        load_keys(request_of.key_files)
    assert read_rows(store.root, **options) == []  # a new read takes the file as it is
    path.unlink()
    with pytest.raises(SourceOptionError, match="is not there; load again"):
        load_keys(request_of.key_files)


def test_what_is_no_file_of_keys_is_refused(tmp_path):
    def refused(name, reason):
        with pytest.raises(SourceOptionError, match=reason):
            load_keys(find_key_files(str(tmp_path / name), ""))

    refused("missing", "keysFrom.*does not exist")
    (tmp_path / "empty").mkdir()
    refused("empty", "has no file")
    (tmp_path / "nested" / "day=1").mkdir(parents=True)
    refused("nested", "is a directory; give a directory with files only")
    os.mkfifo(tmp_path / "fifo")
    refused("fifo", "is a FIFO")
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "two")
    refused("two", "found columns a, b")
    pq.write_table(pa.table({"key": [1, 2]}), tmp_path / "numbers")
    refused("numbers", "'key' is of int64")
    (tmp_path / "torn").write_bytes((tmp_path / "two").read_bytes()[:100])
    refused("torn", "expected Parquet")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\n")
    refused("bytes", "UTF-8")
    (tmp_path / "columns").write_bytes(b"a\x01b\n")
    refused("columns", "one key per line")


@pytest.mark.parametrize("table", ["topics", "queues"])
def test_tables_without_keys_refuse_it(tmp_path, table):
    with pytest.raises(SourceOptionError, match=r"keysFrom.*does not apply"):
        parsed(tmp_path, table=table, keysFrom="x")
