# SPDX-License-Identifier: Apache-2.0
"""One DataFrame or view in many queries: the results are those of separate DataFrames."""

from __future__ import annotations

import random

import pytest
from pyspark.sql.datasource import DataSourceReader

from tests.golden_store import golden
from tests.rmqsource.reading import read_rows
from tests.store_factory import small_store

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = "topic string, queue_id int, commit_log_offset bigint, store_timestamp timestamp"
COLUMNS = ("topic", "queue_id", "commit_log_offset", "store_timestamp")
VIEW = "reused"
QUERIES = 6


@pytest.fixture
def switched(request, spark):
    """Switch filter pushdown as the parameter says, if this Spark supports it."""
    spark.conf.set(PUSHDOWN, request.param)
    yield spark
    spark.conf.unset(PUSHDOWN)


def _of(row, topics):
    return row["topic"] in topics


def _self_join(spark, frame):
    orders = frame.where("topic = 'orders'").alias("a")
    return orders.join(frame.alias("b"), "commit_log_offset").count()


def _sql(condition):
    return lambda spark, frame: spark.sql(f"SELECT count(*) FROM {VIEW} {condition}").first()[0]


# Each with its result on the rows of the store.
ASKED = {
    "count": (lambda spark, frame: frame.count(), len),
    "topic": (
        lambda spark, frame: frame.where("topic = 'orders'").count(),
        lambda rows: sum(_of(row, {"orders"}) for row in rows),
    ),
    "numbers": (
        lambda spark, frame: frame.where("queue_id >= 1 AND commit_log_offset < 90000").count(),
        lambda rows: sum(r["queue_id"] >= 1 and r["commit_log_offset"] < 90000 for r in rows),
    ),
    "select": (
        lambda spark, frame: {row[0] for row in frame.select("topic").distinct().collect()},
        lambda rows: {row["topic"] for row in rows},
    ),
    "union": (
        lambda spark, frame: frame.where("topic = 'readings'").union(frame).count(),
        lambda rows: len(rows) + sum(_of(row, {"readings"}) for row in rows),
    ),
    "self join": (_self_join, lambda rows: sum(_of(row, {"orders"}) for row in rows)),
    "view": (_sql(""), len),
    "view, topics": (
        _sql("WHERE topic IN ('orders', 'shipments')"),
        lambda rows: sum(_of(row, {"orders", "shipments"}) for row in rows),
    ),
    "view twice": (
        _sql(f"WHERE topic NOT IN (SELECT topic FROM {VIEW} WHERE topic = 'orders')"),
        lambda rows: sum(not _of(row, {"orders"}) for row in rows),
    ),
}


@pytest.mark.parametrize(
    ("switched", "seed"), [("true", 1), ("true", 2), ("false", 3)], indirect=["switched"]
)
def test_random_queries_on_one_frame_and_its_view(switched, read, seed):
    store = golden("cluster-5x")
    rows = read_rows(store.root, COLUMNS, **store.options)
    frame = read(store.root, SCHEMA, **store.options)
    frame.createOrReplaceTempView(VIEW)
    names = random.Random(seed).choices(sorted(ASKED), k=QUERIES)
    for number, name in enumerate(names):
        query, wanted = ASKED[name]
        assert query(switched, frame) == wanted(rows), (names, number)


@pytest.mark.parametrize("switched", ["false", "true"], indirect=True)
def test_a_count_before_and_after_a_filter(switched, read):
    store = golden("cluster-5x")
    frame = read(store.root, "topic string", **store.options)
    counts = [frame.count(), frame.where("topic = 'orders'").count(), frame.count()]
    assert counts == [707, 236, 707]


def test_what_a_frame_sees_of_a_store_that_grew(spark, read, tmp_path):
    factory = small_store(tmp_path / "store", 50)
    root = factory.write()
    frame = read(root, "topic string")
    frame.createOrReplaceTempView(VIEW)
    assert frame.count() == 50
    for _ in range(5):
        factory.add("Late", b"later")
    factory.write()
    spark.catalog.refreshTable(VIEW)
    plans_once = hasattr(DataSourceReader, "pushFilters")  # since Spark 4.1
    seen = [frame.select("topic").count(), spark.table(VIEW).count()]
    assert seen == ([50, 50] if plans_once else [55, 55])
    assert read(root, "topic string").count() == 55
    topics = read(root, table="topics")
    assert topics.where("topic = 'Later'").count() == 0
    factory.add("Later", b"later")
    factory.write()
    assert topics.where("topic = 'Later'").count() == 1
