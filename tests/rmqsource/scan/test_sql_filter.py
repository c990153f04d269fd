# SPDX-License-Identifier: Apache-2.0
"""Option ``sqlFilter`` gives the rows of a scan whose properties match one by one."""

from __future__ import annotations

import json
import logging

import pytest
from pyspark.sql.types import StructType

from rmqsource.errors import SourceOptionError
from rmqsource.options.source_options import warn_of_ignored_input
from rmqsource.spark.store_format import RocketMQStoreDataSource
from store_core import SqlFilter
from store_core.errors import IgnoredInputWarning
from tests.golden_store import CLUSTER_NAMES, golden
from tests.rmqsource.reading import parsed, plan, read_batches, read_places, read_rows
from tests.store_factory import StoreFactory

STORES = ("classic-5x", "classic-4x", "batch-5x", "crashed-5x", *CLUSTER_NAMES)
EXPRESSIONS = (
    "TAGS = 'TagA' OR KEYS IS NULL",
    "amount > 20 AND color IN ('red', 'blue')",
    "NOT (TAGS IN ('TagA', 'TagB')) AND WAIT = TRUE",
    "KEYS STARTSWITH 'K1' OR nothing IS NOT NULL",
)


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("name", STORES)
def test_rows_are_those_that_match_alone(name, expression):
    store = golden(name)
    wanted = SqlFilter(expression)
    columns = ("commit_log_offset", "queue_offset", "properties", "body")
    rows = read_rows(store.root, columns, **store.options)
    expected = [row for row in rows if wanted.matches(dict(row["properties"]))]
    found = read_rows(store.root, columns, sqlFilter=expression, **store.options)
    assert found == expected
    if name != "crashed-5x":  # over all stores, each expression selects some rows and not others
        assert len(found) < len(rows)


def test_messages_of_inner_batches_have_properties_of_their_own():
    store = golden("batch-5x")
    rows = read_rows(store.root, ("queue_offset", "sys_flag", "keys"), **store.options)
    inner = [row["keys"] for row in rows if row["sys_flag"] & 0xC0 and row["keys"]]
    assert len(inner) > 1
    for key in (inner[0][0], inner[-1][0]):
        found = read_rows(store.root, ("keys",), sqlFilter=f"KEYS = '{key}'", **store.options)
        assert [key] in [row["keys"] for row in found]
        assert all(row["keys"] == [key] for row in found)


@pytest.mark.parametrize("name", CLUSTER_NAMES)
def test_what_consumers_received(name):
    store = golden(name)
    dialect = "4" if name == "cluster-4x" else "5"
    topics = store.config["topics"]
    for number, expression in store.config["sql_expressions"].items():
        group = f"cg_{topics['normal']}_{number}"
        received = [row for row in store.dump("received") if row["group"] == group]
        expected = sorted((row["commit_log_offset"], row["queue_offset"]) for row in received)
        options = {"topic": topics["filter"], "sqlFilter": expression, "sqlDialect": dialect}
        assert read_places(store.root, **options, **store.options) == expected


def test_with_all_other_options():
    store = golden("cluster-5x")
    topic = store.config["topics"]["filter"]
    where = {"topic": topic, "tags": "TagA || TagB", "where": "queue_id = 1"}
    wanted = SqlFilter("n < 100")
    columns = ("commit_log_offset", "queue_offset", "properties")
    rows = read_rows(store.root, columns, **where, **store.options)
    expected = [row for row in rows if wanted.matches(dict(row["properties"]))]
    assert 0 < len(expected) < len(rows)
    for access in ("auto", "commitlog", "consumequeue"):
        options = {**where, **store.options, "access": access, "sqlFilter": "n < 100"}
        assert read_rows(store.root, columns, **options) == expected


@pytest.mark.parametrize("name", ["cluster-5x", "batch-5x"])
def test_the_table_of_keys(name):
    store = golden(name)
    expression = "TAGS = 'TagA'"
    messages = read_places(store.root, sqlFilter=expression, **store.options)
    columns = ("commit_log_offset", "queue_offset", "key")
    of_table = {"table": "keys", **store.options}
    found = read_rows(store.root, columns, sqlFilter=expression, **of_table)
    offsets = {(row["commit_log_offset"], row["queue_offset"]) for row in found}
    expected = [
        row
        for row in read_rows(store.root, columns, **of_table)
        if (row["commit_log_offset"], row["queue_offset"]) in set(messages)
    ]
    assert found == expected
    assert offsets <= set(messages)


def test_raw_bodies_and_any_columns():
    store = golden("cluster-5x")
    options = {**store.options, "sqlFilter": "TAGS = 'TagA'"}
    places = read_places(store.root, **options)
    raw = read_rows(store.root, ("body",), body="raw", **options)
    assert len(raw) == len(places)
    assert len(read_rows(store.root, ("tags",), **options)) == len(places)
    assert {row["tags"] for row in read_rows(store.root, ("tags",), **options)} == {"TagA"}
    counted = [len(batch[""]) for batch in read_batches(store.root, (), **options) if "" in batch]
    assert not counted or sum(counted) == len(places)


@pytest.fixture
def numbers(tmp_path):
    store = StoreFactory(tmp_path / "store", segment_bytes=1 << 14)
    for number in range(30):
        store.add("T", properties={"n": "x" if number % 3 == 0 else str(number), "t": "a"})
    store.write()
    return store


def test_messages_without_a_result_are_left_out_and_counted(numbers, caplog):
    with caplog.at_level(logging.WARNING):
        rows = read_rows(numbers.root, ("commit_log_offset", "properties"), sqlFilter="n > 15")
    assert [dict(row["properties"])["n"] for row in rows] == [
        str(number) for number in range(16, 30) if number % 3
    ]
    assert len(caplog.records) == 1
    text = caplog.records[0].getMessage()
    assert "10 messages for which the SQL filter has no result are skipped" in text
    assert "first at offset 0: SQL filter n > 15: the value 'x' of property n" in text


def test_what_other_options_leave_out_is_not_counted(numbers, caplog):
    with caplog.at_level(logging.WARNING):
        rows = read_rows(numbers.root, ("topic",), sqlFilter="n > 15", tags="none")
        rows += read_rows(numbers.root, ("topic",), sqlFilter="n > 15", where="topic = 'U'")
    assert (rows, caplog.records) == ([], [])


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_damage_is_shown_as_without_the_filter(numbers, mode):
    place = numbers.records[10]
    path = next((numbers.root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[place.commit_log_offset + 4 : place.commit_log_offset + 8] = b"\1\2\3\4"
    path.write_bytes(data)
    columns = ("commit_log_offset", *(["_corrupt_record"] if mode == "PERMISSIVE" else []))
    rows = read_rows(numbers.root, columns, sqlFilter="t = 'b' OR n = '20'", mode=mode)
    damage = [row for row in rows if row.get("_corrupt_record")]
    found = [row["commit_log_offset"] for row in rows if not row.get("_corrupt_record")]
    assert found == [numbers.records[20].commit_log_offset]
    assert [json.loads(row["_corrupt_record"])["commit_log_offset"] for row in damage] == (
        [place.commit_log_offset] if mode == "PERMISSIVE" else []
    )


def test_the_plan_tells_of_the_filter(numbers):
    reason = plan(numbers.root, sqlFilter="n > 5")[0].reason
    assert "each message is read for option sqlFilter" in reason
    reason = plan(numbers.root, sqlFilter="n LIKE 'x%'")[0].reason
    assert "RocketMQ ignores \"LIKE 'x%'\"" in reason


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({"sqlFilter": "n >"}, "sqlFilter", "column 4"),
        ({"sqlFilter": "  "}, "sqlFilter", "is empty"),
        ({"sqlDialect": "5"}, "sqlDialect", "give that too"),
        ({"sqlFilter": "n > 5", "sqlDialect": "3"}, "sqlDialect", "3"),
        ({"sqlFilter": "n > 5", "table": "queues"}, "sqlFilter", "does not apply"),
    ],
)
def test_wrong_options(options, option, text):
    with pytest.raises(SourceOptionError, match=text) as raised:
        parsed("anywhere", **options)
    assert raised.value.option == option


def test_dialects_differ():
    store = golden("cluster-5x")
    options = {**store.options, "sqlFilter": "region STARTSWITH 'n'"}
    assert read_places(store.root, **options)
    assert read_places(store.root, sqlDialect="4", **options) == []


def test_options_are_parsed_without_a_warning():
    """Spark parses them in several processes: the one that loads them warns, once."""
    options = parsed("anywhere", sqlFilter="n LIKE 'x%'")
    with pytest.warns(IgnoredInputWarning, match="option sqlFilter: RocketMQ ignores"):
        warn_of_ignored_input(options)
    warn_of_ignored_input(parsed("anywhere", sqlFilter="n > 5"))


def test_spark_is_warned_where_it_asks_first(numbers):
    texts = {"path": str(numbers.root), "sqlFilter": "n LIKE 'x%'"}
    with pytest.warns(IgnoredInputWarning, match="LIKE"):
        schema = RocketMQStoreDataSource(texts).schema()
    RocketMQStoreDataSource(texts).reader(schema)
    with pytest.warns(IgnoredInputWarning, match="LIKE"):  # with .schema() it asks for no other
        RocketMQStoreDataSource(texts).reader(StructType(schema.fields[:1]))
