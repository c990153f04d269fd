# SPDX-License-Identifier: Apache-2.0
"""The source in a Spark session: rows, schemas, pushdown, tables, SQL and tokens."""

from __future__ import annotations

import json
import re

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.datasource import DataSourceRegistration

import rmqsource
from rmqsource.schema import table_schema
from rmqsource.spark.store_format import RocketMQStoreDataSource
from rmqsource.spark_compat import _keeps_pushed_reads_apart
from rmqsource.tables import TABLES
from store_core import SqlFilter
from tests.golden_store import golden
from tests.rmqsource.reading import comparable, expected_rows, key_rows
from tests.store_factory import small_store

MESSAGE_TABLES = ("messages", "keys")


def rows_of(frame):
    found = []
    for row in frame.collect():
        values = row.asDict()
        for name, value in values.items():
            if isinstance(value, bytearray):
                values[name] = bytes(value)
        found.append(values)
    return found


@pytest.mark.parametrize("name", ["classic-5x", "cluster-5x", "batch-5x"])
def test_golden_messages(read, name):
    store = golden(name)
    frame = read(store.root, maxPartitionBytes="200k", **store.options)
    assert frame.rdd.getNumPartitions() > 1
    found = sorted(comparable(rows_of(frame)), key=_place)
    assert found == sorted(expected_rows(store), key=_place)


def _place(row):
    return row["commit_log_offset"], row["queue_offset"]


def test_table_keys_of_a_golden_store(read):
    store = golden("cluster-5x")
    frame = read(store.root, table="keys", **store.options)
    found = [
        tuple(row)
        for row in frame.select("key", "key_kind", *["commit_log_offset", "queue_offset"]).collect()
    ]
    assert sorted(found) == sorted(key_rows(expected_rows(store)))


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_has_its_schema_and_rows(read, table):
    store = golden("cluster-5x")
    frame = read(store.root, table=table, **store.options)
    assert frame.schema == table_schema(table, "FAILFAST")
    assert frame.count() > 0


@pytest.mark.parametrize("table", sorted(TABLES))
def test_an_empty_store_has_no_rows_but_the_schema(read, table):
    frame = read(golden("empty-5x").root, table=table)
    assert frame.schema == table_schema(table, "FAILFAST")
    rows = frame.collect()
    assert not rows or table in {"plan", "checkpoint", "segments"}


CONDITIONS = [
    "topic = 'orders'",
    "topic IN ('orders', 'readings', 'nope') AND queue_id = 1",
    "queue_id >= 1 AND queue_offset < 20 AND queue_offset > 3",
    "store_timestamp >= timestamp'2026-11-21 12:26:40Z' OR topic = 'orders'",
    "tags = 'TagA' AND body IS NOT NULL",
    "unique_key IS NOT NULL AND commit_log_offset <= 100000",
    "array_contains(keys, 'F0') AND topic = 'readings'",
    "tags <=> NULL AND topic != 'orders'",
    "lower(topic) = 'readings' AND queue_id IN (0, 2)",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_pushdown_changes_nothing(spark, read, condition):
    store = golden("cluster-5x")
    found = []
    for switch in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", switch)
        frame = read(store.root, **store.options).where(condition)
        found.append(frame.drop("properties").orderBy("commit_log_offset").localCheckpoint())
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert_df_equality(found[0], found[1])


@pytest.mark.skipif(not _keeps_pushed_reads_apart(), reason="this Spark mixes up pushed reads")
def test_pushed_filters_reach_the_planner(pushing_read):
    store = golden("cluster-5x")
    ids = [row["message_id"] for row in expected_rows(store)[:2]]
    frame = pushing_read(store.root, **store.options).where(F.col("message_id").isin(ids))
    assert frame.count() == 2
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "PushedFilters: [In" in plan or "message_id" in plan
    keys = pushing_read(store.root, table="keys", **store.options)
    found = keys.where("topic = 'readings' AND key = 'F0'").select("key", "topic").collect()
    assert [tuple(row) for row in found] == [("F0", "readings")]


def test_projection_in_any_order_and_case(read):
    store = golden("batch-5x")
    frame = read(store.root, "Body binary, QUEUE_ID int, topic string", **store.options)
    assert frame.columns == ["Body", "QUEUE_ID", "topic"]
    wanted = [(row["body"], row["queue_id"], row["topic"]) for row in expected_rows(store)]
    assert sorted((bytes(b), q, t) for b, q, t in frame.collect()) == sorted(wanted)
    raw = read(store.root, "properties_raw binary NOT NULL", **store.options)
    assert raw.first()[0]


def test_counting_and_limits(read):
    store = golden("classic-5x")
    frame = read(store.root, **store.options)
    assert frame.count() == len(expected_rows(store))
    assert read(store.root, "queue_id int", **store.options).count() == len(expected_rows(store))
    assert len(frame.limit(3).collect()) == 3
    assert frame.select("topic").distinct().count() == 11


def test_a_sql_filter(read):
    store = golden("cluster-5x")
    wanted = SqlFilter("n < 100 AND region IN ('north', 'east')")
    frame = read(store.root, "tags string, queue_offset long", sqlFilter=wanted.expression,
                 **store.options)  # fmt: skip
    expected = [row for row in expected_rows(store) if wanted.matches(dict(row["properties"]))]
    assert len({row["tags"] for row in expected}) > 2
    found = [(row.queue_offset, row.tags) for row in frame.where("tags <> 'TagA'").collect()]
    assert sorted(found) == sorted(
        (row["queue_offset"], row["tags"]) for row in expected if row["tags"] not in {None, "TagA"}
    )


def test_errors_reach_the_user(read, tmp_path):
    root = golden("onefile-5x").root
    quoted = "expected a text in single quotes to compare topic with; found 'a', at column 9"
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "file.txt").write_text("x")
    for load, message in (
        (lambda: read(root, topik="x"), "option 'topik': is unknown, did you mean 'topic'"),
        (lambda: read("/no/such/store"), "/no/such/store: does not exist"),
        (lambda: read(tmp_path / "junk"), "no RocketMQ store; found file.txt"),
        (lambda: read(tmp_path / "no*"), "no*"),
        (lambda: read(root, startingTimestamp="2020-01-01 00:00:00"), "startingTimestamp"),
        (lambda: read(root, topic="a", topicPattern="b"), "cannot be given together"),
        (lambda: read(root, table="messagess"), "messages"),
        (lambda: read(root, where="topic = a"), quoted),
        (lambda: read(root, where="key = 'a'"), "give option table=keys"),
        (lambda: read(root, where="topic = 'a'", table="queues"), "with Spark's WHERE"),
        (lambda: read(root, sqlFilter="a >"), "option 'sqlFilter': SQL filter, column 4"),
        (lambda: read(root, sqlFilter="a > 1", table="queues"), "does not apply to table"),
        (lambda: read(root, "topic int").count(), "column 'topic' is of type string; found int"),
        (lambda: read(root, "topik string").count(), "did you mean 'topic'"),
        (lambda: read(root, "topic string", mode="SLOPPY").count(), "PERMISSIVE"),
    ):
        with pytest.raises(PySparkException, match=re.escape(message)):
            load().count()


def test_damage_as_spark_shows_it(read):
    torn = golden("torn-5x")
    with pytest.raises(PySparkException, match="to PERMISSIVE") as failure:
        read(torn.root, **torn.options).collect()
    assert "commitlog/" in str(failure.value)
    frame = read(torn.root, mode="PERMISSIVE", maxPartitionBytes="20k", **torn.options)
    assert frame.count() == 901
    bad = [
        json.loads(row[0])
        for row in frame.where("_corrupt_record IS NOT NULL").select("_corrupt_record").collect()
    ]
    assert sorted(gap["bytes_lost"] for gap in bad) == [202, 300]
    assert frame.where("topic IS NOT NULL").count() == 899
    assert read(torn.root, mode="DROPMALFORMED", **torn.options).count() == 899


def test_pushdown_over_damage(pushing_read):
    torn = golden("torn-5x")
    frame = pushing_read(torn.root, mode="PERMISSIVE", **torn.options)
    assert frame.where("topic = 'TopicTest'").where("_corrupt_record IS NOT NULL").count() == 0
    assert frame.where("_corrupt_record IS NOT NULL").count() == 2


def test_sql_view(spark, read):
    store = golden("cluster-5x")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW log USING `rocketmq-store` "
        f"OPTIONS (path '{store.root}', topic 'orders')"
    )
    wanted = [row for row in expected_rows(store) if row["topic"] == "orders"]
    assert spark.sql("SELECT count(*) AS n FROM log").first().n == len(wanted)
    per_queue = spark.sql(
        "SELECT queue_id, max(queue_offset) + 1 AS n FROM log GROUP BY 1"
    ).collect()
    assert sum(row.n for row in per_queue) == len(wanted)
    spark.catalog.dropTempView("log")


def test_several_stores_and_globs(read, tmp_path):
    first, second = golden("onefile-5x"), golden("crashed-5x")
    both = read([first.root, second.root], "store string, commit_log_offset bigint")
    counts = {row["store"]: row["count"] for row in both.groupBy("store").count().collect()}
    assert counts == {str(first.root): 5, str(second.root): 900}
    for name in ("a", "b"):
        small_store(tmp_path / f"store-{name}", 30).write()
    assert read(tmp_path / "store-*").count() == 60
    assert {
        row[0] for row in read(tmp_path / "store-[a]", "store string").distinct().collect()
    } == {str(tmp_path / "store-a")}


def test_a_token_makes_reads_of_a_growing_store_agree(read, tmp_path):
    factory = small_store(tmp_path / "store", 50)
    root = factory.write()
    token = rmqsource.snapshot(str(root))
    before = read(root, snapshot=token)
    for _ in range(40):
        factory.add("Late", b"later")
    factory.write()
    assert before.count() == 50
    assert read(root, snapshot=token).union(before).count() == 100
    joined = before.alias("a").join(before.alias("b"), "commit_log_offset")
    assert joined.count() == 50
    assert read(root).count() == 90
    other = small_store(tmp_path / "other", 5).write()
    with pytest.raises(PySparkException, match=re.escape(f"does not name store {other}")):
        read(other, snapshot=token).count()


def test_the_plan_table(pushing_read):
    store = golden("cluster-5x")
    row = pushing_read(store.root, table="plan", topic="orders", **store.options).first()
    assert row.access_path in {"consumequeue", "commitlog"}
    assert row.bytes_to_read > 0
    assert row.missing_offsets is None


def test_gone_offsets_as_spark_shows_them(read):
    store = golden("expired-5x")
    asked = '{"OnlyOld":{"0":1}}'
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        read(store.root, startingOffsets=asked, **store.options).count()
    frame = read(store.root, startingOffsets=asked, failOnDataLoss="false", **store.options)
    assert frame.count() == len(expected_rows(store))
    plan = read(
        store.root, table="plan", startingOffsets=asked, failOnDataLoss="false", **store.options
    )
    assert json.loads(plan.first().missing_offsets) == [
        {"topic": "OnlyOld", "queue_id": 0, "start": 1, "stop": 40}
    ]


def test_a_source_that_spark_found_is_not_registered_again(spark, monkeypatch):
    rmqsource.register(spark)
    registered = []
    monkeypatch.setattr(DataSourceRegistration, "register", lambda _, source: registered.append(1))
    rmqsource.register(spark)  # Spark would warn that it was replaced
    assert registered == []
    monkeypatch.setattr(RocketMQStoreDataSource, "name", lambda: "rocketmq-store-of-nobody")
    rmqsource.register(spark)
    assert registered == [1]


def test_a_table_of_the_catalog_is_refused_with_what_to_do(spark, read):
    store = golden("classic-5x")
    read(store.root, **store.options)  # registers
    table = f"CREATE TABLE none USING `rocketmq-store` OPTIONS (path '{store.root}')"
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(table)
