# SPDX-License-Identifier: Apache-2.0
"""Conditions in SQL: which ones are accepted and refused, and that they are exact on every path."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqsource
from rmqsource.errors import SourceOptionError
from rmqsource.explore.message_trace import trace_messages
from rmqsource.options.source_options import parse_options
from rmqsource.options.where import parse_where
from rmqsource.tables import TABLES
from tests.golden_store import golden
from tests.rmqsource.options.where_texts import COLUMNS, NUMBER_COLUMNS, conditions, where_text
from tests.rmqsource.reading import parsed, places, plan, read_places, read_rows
from tests.store_factory import START_MS, StoreFactory

NINE = 1_769_850_000_000_000_000  # 2026-01-31T09:00:00Z in nanoseconds


def comparisons(text: str) -> list[tuple[str, str, tuple[Any, ...]]]:
    return [found[:3] for found in parse_where("where", text)]


def test_conjunction_of_every_kind() -> None:
    text = "topic = 'orders' AND queue_id IN (0, 2) and `QUEUE_OFFSET` >= 5 AND Key='it''s'"
    assert comparisons(text) == [
        ("topic", "=", ("orders",)),
        ("queue_id", "in", (0, 2)),
        ("queue_offset", ">=", (5,)),
        ("key", "=", ("it's",)),
    ]


@pytest.mark.parametrize("sign", ["=", "<", "<=", ">", ">="])
def test_signs(sign: str) -> None:
    assert comparisons(f"commit_log_offset {sign} -7") == [("commit_log_offset", sign, (-7,))]
    assert comparisons(f"queue_id{sign}+7") == [("queue_id", sign, (7,))]


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2026-01-31T09:00:00Z", NINE),
        ("2026-01-31 09:00Z", NINE),
        ("2026-01-31 09:00:00.0 Z", NINE),
        ("2026-01-31 17:00:00+08:00", NINE),
        ("2026-01-31T17:00:00.000001+0800", NINE + 1000),
        ("9999-12-31T23:59:59.999999-18:00", 253_402_365_599_999_999_000),
        ("0001-01-01T00:00:00+18:00", -62_135_661_600_000_000_000),
    ],
)
def test_times(text: str, nanoseconds: int) -> None:
    for word in ("", "timestamp ", "TIMESTAMP"):
        found = comparisons(f"store_timestamp < {word}'{text}'")
        assert found == [("store_timestamp", "<", (nanoseconds,))]


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("", 1, "expected a column that can be compared; the text ends too early"),
        (" topic ", 7, "expected an operator after topic; the text ends too early"),
        ("topic = 'a' OR topic = 'b'", 13, "expected AND or the end; found 'OR'"),
        ("topic = 'a' AND", 16, "the text ends too early"),
        ("(topic = 'a')", 1, "expected a column that can be compared; found '('"),
        ("queue_id = 1 AND body = 'a'", 18, "found 'body'"),
        ("topic < 'a'", 7, "topic cannot be compared with <"),
        ("topic <> 'a'", 7, "topic cannot be compared with <"),
        ("topic LIKE 'a%'", 7, "found 'LIKE'"),
        ("topic IS NOT NULL", 7, "found 'IS'"),
        ("NOT topic = 'a'", 1, "found 'NOT'"),
        ("topic = orders", 9, "expected a text in single quotes to compare topic with"),
        ("topic = NULL", 9, "found 'NULL'"),
        ('topic = "a"', 9, "cannot read '\"a\"'"),
        ("topic = 'a\\'b'", 9, "cannot read"),
        ("topic =  'open", 10, 'cannot read "\'open"'),
        ("queue_id = '1'", 12, "expected an integer to compare queue_id with; found \"'1'\""),
        ("queue_id = 1.5", 12, "cannot read '1.5'"),
        ("queue_id = 5L", 12, "cannot read '5L'"),
        ("queue_id = " + "9" * 5000, 12, "expected an integer"),
        ("queue_id IN (1 2)", 16, "expected , or ); found '2'"),
        ("queue_id IN ()", 14, "expected an integer"),
        ("queue_id IN 1", 13, "expected ( after IN"),
        ("store_timestamp > 5", 19, "expected a time in single quotes"),
        ("store_timestamp > TIMESTAMP 'noon'", 29, "expected a time"),
        ("store_timestamp > '2026-01-01Z'", 19, "expected a time"),
        ("store_timestamp > '2026-01-01T24:00:00Z'", 19, "ISO 8601"),
        ("store_timestamp > '2026-01-01T00:00:00.0000001Z'", 19, "microsecond precision"),
        ("store_timestamp > '2026-01-01T00:00:00+19:00'", 19, "from -18:00 to +18:00"),
        ("store_timestamp > '2026-01-01 09:00:00'", 19, "write '2026-01-01T09:00:00Z'"),
        ("queue_id = 1 AND key = 'a'", 18, "give option table=keys"),
    ],
)
def test_anything_else_says_where_and_what_is_allowed(text: str, column: int, reason: str) -> None:
    with pytest.raises(SourceOptionError, match="allowed are comparisons joined by AND") as found:
        parse_options({"path": "/s", "WHERE": text})
    assert reason in str(found.value)
    assert f", at column {column} of " in str(found.value)
    assert str(found.value).startswith("option 'where': ")
    assert len(str(found.value)) < 1000


@pytest.mark.parametrize("table", sorted(TABLES))
def test_which_tables_take_it(table: str) -> None:
    given = {"path": "/s", "table": table, "where": "topic = 'a' AND unique_key = 'b'"}
    if table in {"messages", "keys", "plan"}:
        assert len(parse_options(given).where) == 2
    else:
        with pytest.raises(SourceOptionError, match="drop it and filter with Spark's WHERE"):
            parse_options(given)


def test_key_in_the_tables_that_have_it() -> None:
    for table in ("keys", "plan"):
        assert parse_options({"path": "/s", "table": table, "where": "key = 'a'"}).where


def test_a_key_or_unique_key_is_enough_for_the_index() -> None:
    store = golden("cluster-5x")
    wanted = read_rows(store.root, topic="orders", **store.options)[3]
    where = f"topic = 'orders' AND unique_key = '{wanted['unique_key']}'"
    found = read_places(store.root, where=where, access="index", **store.options)
    assert found == places([wanted])


def test_a_trace_refuses_it() -> None:
    store = golden("cluster-5x")
    options = parsed(store.root, where="topic = 'orders'", **store.options)
    with pytest.raises(SourceOptionError, match="would leave copies of a message out"):
        trace_messages(options, keys=["shared-key"])


# -- exact, on every path ------------------------------------------------------------------------

QUOTED = ("it's", "''a''", "é", "", " ", "a AND b")


@functools.cache
def odd_store(root: Any) -> Any:
    """Return a store with quotes in names, times that Spark cannot represent, and no tags."""
    factory = StoreFactory(root, segment_bytes=1 << 14)
    times = (START_MS, START_MS + 1, -(2**62), 2**62, 253_402_300_799_999, 253_402_300_800_000, 0)
    for number in range(90):
        word = QUOTED[number % len(QUOTED)]
        time = times[number % len(times)]
        properties = {"TAGS": word, "KEYS": f"{word} k{number % 5}", "UNIQ_KEY": f"u{number % 7}"}
        if abs(time - START_MS) > 1:
            properties = {"TAGS": word} if number % 2 else {}  # an index holds no such times
        factory.add(
            ("it's", "orders", "Orders")[number % 3],
            queue_id=number % 4,
            properties=properties,
            store_timestamp=time,
        )
    return factory.write()


def _source(name: str, odd_root: Any) -> tuple[Any, dict[str, Any]]:
    if name == "odd":
        return odd_store(odd_root), {"storeTimeSlackMs": 2**62}
    store = golden(name)
    return store.root, store.options


@pytest.fixture(scope="module")
def odd_root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("odd") / "store"


@pytest.mark.parametrize(
    ("name", "table"),
    [
        *(("odd", "messages"), ("odd", "keys"), ("cluster-5x", "keys")),
        *(("batch-5x", "messages"), ("crashed-5x", "messages")),
    ],
)
def test_where_means_scan_then_filter(name: str, table: str, odd_root: Any) -> None:
    root, options = _source(name, odd_root)
    columns = (*COLUMNS, "key") if table == "keys" else COLUMNS
    shown = (*columns, "sys_flag")
    rows = read_rows(root, shown, table=table, access="commitlog", **options)
    rows = [row for row in rows if row["sys_flag"] & 12 in {0, 8}]
    topics = sorted({row["topic"] for row in rows})

    @settings(
        max_examples=10,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(conditions(rows, columns), st.none() | st.sets(st.sampled_from(topics), min_size=1))
    def run(asked: Any, named: Any) -> None:
        read = {**options, "table": table, "where": where_text(asked), "batchRows": 37}
        if named is not None:
            read["topic"] = json.dumps(sorted(named))
        wanted = [
            row
            for row in rows
            if all(one.keeps(row) for one in asked) and (named is None or row["topic"] in named)
        ]
        for access in ({}, {"access": "consumequeue"}):
            try:
                found = read_rows(root, shown, **read, **access)
            except SourceOptionError:
                if not access:
                    raise
                continue
            found = [row for row in found if row["sys_flag"] & 12 in {0, 8}]
            assert sorted(map(repr, found)) == sorted(map(repr, wanted)), access

    run()


def test_scattered_values_of_numbers_are_exact() -> None:
    store = golden("cluster-5x")
    rows = read_rows(store.root, **store.options)
    for column in NUMBER_COLUMNS:
        values = sorted({row[column] for row in rows})
        some = values[:: max(len(values) // 3, 2)]
        where = f"{column} IN ({', '.join(map(str, some))}) AND {column} IN ({some[0]}, {some[-1]})"
        wanted = [row for row in rows if row[column] in {some[0], some[-1]}]
        assert read_places(store.root, where=where, **store.options) == sorted(places(wanted))


def test_conjunction_with_options_of_the_same_column() -> None:
    store = golden("cluster-5x")
    both = {"topic": "orders,readings", "where": "topic IN ('readings', 'shipments')"}
    found = read_rows(store.root, ("topic",), **both, **store.options)
    assert {row["topic"] for row in found} == {"readings"}
    none = {"topic": "orders", "where": "topic = 'readings'"}
    assert read_rows(store.root, **none, **store.options) == []
    assert plan(store.root, **none, **store.options)[0].bytes_to_read == 0


def test_gaps_are_shown_whatever_where_selects() -> None:
    torn = golden("torn-5x")
    read = {**torn.options, "mode": "PERMISSIVE", "where": "topic = 'nope'"}
    rows = read_rows(torn.root, **read)
    assert sorted(json.loads(row["_corrupt_record"])["bytes_lost"] for row in rows) == [202, 300]
    assert read_rows(torn.root, **{**read, "mode": "DROPMALFORMED"}) == []


# -- explain -------------------------------------------------------------------------------------


def test_explain_agrees_with_the_option() -> None:
    store = golden("cluster-5x")
    text = "topic = 'orders' AND key = 'shared-key'"
    options = {**store.options, "table": "keys"}
    explained = rmqsource.explain(str(store.root), options, where=text)
    assert explained == rmqsource.explain(str(store.root), {**options, "Where": text})
    assert "access path      index" in explained
    both = rmqsource.explain(str(store.root), {**options, "where": text}, where="topic = 'nope'")
    assert "no message can match" in both
    with pytest.raises(SourceOptionError, match="at column 1 of 'topik = 1'"):
        rmqsource.explain(str(store.root), options, where="topik = 1")
    with pytest.raises(SourceOptionError, match="give option table=keys"):
        rmqsource.explain(str(store.root), store.options, where=text)


def test_explain_takes_filters_too() -> None:
    datasource = pytest.importorskip("pyspark.sql.datasource")
    if not hasattr(datasource, "EqualTo"):
        pytest.skip("Spark 4.0 has no filter classes")
    store = golden("cluster-5x")
    filters = [datasource.EqualTo(("topic",), "orders"), datasource.EqualTo(("key",), "shared-key")]
    options = {**store.options, "table": "keys"}
    explained = rmqsource.explain(str(store.root), options, filters)
    text = "topic = 'orders' AND key = 'shared-key'"
    assert explained == rmqsource.explain(str(store.root), options, text)
