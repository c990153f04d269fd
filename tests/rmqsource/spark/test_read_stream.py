# SPDX-License-Identifier: Apache-2.0
"""Streams in a Spark session: rows, restarts, joins, mirrors, errors, progress.

A watermark and a window are an example of docs/streaming.md, whose output its test compares.
"""

from __future__ import annotations

import json

import pyspark
import pytest
from pyspark.errors import PySparkException

import rmqsource
from rmqsource.explore.diff_stores import compare_stores
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from rmqsource.stream.stream_lag import store_lags
from tests.rmqsource.reading import parsed
from tests.rmqsource.stream.growing_store import GrowingStore

needs_limits = pytest.mark.skipif(
    not STREAM_READER_GETS_LIMITS, reason="Spark before 4.2 knows no limits of streams"
)

needs_no_limits = pytest.mark.skipif(
    STREAM_READER_GETS_LIMITS, reason="Spark 4.2 and later know limits of streams"
)
LIMITS = {
    "maxOffsetsPerTrigger": 20,
    "maxBytesPerTrigger": 4096,
    "minOffsetsPerTrigger": 20,
}


@pytest.fixture
def growing(tmp_path):
    with GrowingStore(tmp_path / "store") as store:
        yield store


class Query:
    """Runs a streaming DataFrame repeatedly, and collects its batches."""

    def __init__(self, frame, checkpoint):
        self.frame, self.checkpoint = frame, checkpoint
        self.batches = {}
        self.progress = []

    def run(self, **trigger):
        """Run until no data is left; return the rows of all batches so far."""

        def keep(batch, number):
            self.batches[number] = [tuple(row) for row in batch.collect()]

        query = (
            self.frame.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger or {"availableNow": True})
            .start()
        )
        query.awaitTermination()
        self.progress = query.recentProgress
        return [row for number in sorted(self.batches) for row in self.batches[number]]


@pytest.fixture
def stream(spark, tmp_path):
    """Return streaming DataFrames of a store."""
    rmqsource.register(spark)

    def load(root, **options):
        reader = spark.readStream.format("rocketmq-store")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(str(root))

    return load


def refused(frame, checkpoint, words):
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    with pytest.raises(PySparkException) as told:
        query.awaitTermination()
    assert words in str(told.value)
    assert "UnboundLocalError" not in str(told.value)


@pytest.mark.parametrize("trigger", ["availableNow", "once"])
def test_one_batch_without_limits(growing, stream, tmp_path, trigger):
    query = Query(stream(growing.root).select("body"), tmp_path / "checkpoint")
    for count in (50, 30):  # the second query continues where the first one stopped
        growing.put(count)
        assert [body for (body,) in query.run(**{trigger: True})] == growing.put_bodies
    assert [len(rows) for rows in query.batches.values()] == [50, 30]


def test_a_sql_filter(growing, stream, tmp_path):
    growing.put(9)
    options = {"sqlFilter": "TAGS IN ('tag1', 'tag2') AND KEYS <> 'key4'"}
    query = Query(stream(growing.root, **options).select("body"), tmp_path / "checkpoint")
    wanted = [growing.put_bodies[number] for number in (1, 2, 5, 7, 8)]
    assert [body for (body,) in query.run()] == wanted


@needs_no_limits
@pytest.mark.parametrize("option", LIMITS)
def test_limits_are_refused(growing, stream, tmp_path, option):
    growing.put(50)
    words = f"option '{option}': needs Spark 4.2; this is {pyspark.__version__}"
    refused(stream(growing.root, **{option: LIMITS[option]}), tmp_path / "checkpoint", words)


@needs_limits
def test_limits_and_progress(growing, stream, tmp_path):
    growing.put(50)
    frame = stream(growing.root, maxOffsetsPerTrigger=20).select("body")
    query = Query(frame, tmp_path / "checkpoint")
    assert [body for (body,) in query.run()] == growing.put_bodies
    assert [len(rows) for _, rows in sorted(query.batches.items())] == [20, 20, 10]
    (source,) = query.progress[0]["sources"]
    latest = json.loads(json.dumps(source["latestOffset"]))
    latest = json.loads(latest) if isinstance(latest, str) else latest
    (store,) = latest["stores"].values()
    assert store["waiting"] == 30


def test_the_listener_tells_the_lag_of_each_batch(growing, spark, stream, tmp_path):
    growing.put(50)
    limits = {"maxOffsetsPerTrigger": 20} if STREAM_READER_GETS_LIMITS else {}
    reported = []
    listener = rmqsource.StreamLagListener(reported.extend)
    spark.streams.addListener(listener)
    try:
        query = Query(stream(growing.root, **limits), tmp_path / "checkpoint")
        query.run()
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert [lag.messages_behind for lag in reported] == ([30, 10, 0] if limits else [0])
    assert {lag.store for lag in reported} == {str(growing.root)}
    assert [lag for progress in query.progress for lag in store_lags(progress)] == reported
    assert reported[-1].end_offset == growing.store.max_phy_offset


def test_several_stores_are_followed_at_once(growing, spark, tmp_path):
    rmqsource.register(spark)
    with GrowingStore(tmp_path / "other") as other:
        growing.put(3)
        other.put(4)
        paths = json.dumps([str(growing.root), str(other.root)])
        frame = spark.readStream.format("rocketmq-store").option("paths", paths).load()
        query = Query(frame.select("body"), tmp_path / "checkpoint")
        assert [body for (body,) in query.run()] == growing.put_bodies + other.put_bodies


def test_what_is_wrong_is_told(growing, stream, tmp_path):
    growing.put(5)
    refused(stream(growing.root, endingOffsets="latest"), tmp_path / "1", "a stream has no end")
    refused(stream(growing.root, table="topics"), tmp_path / "2", "cannot be followed")
    Query(stream(growing.root), tmp_path / "3").run()
    refused(stream(growing.root, topic="Topic1"), tmp_path / "3", "the checkpoint was begun with")
    growing.put(200)
    growing.expire(2)
    # Before 4.2 Spark does not say where a batch starts until it is planned.
    words = (
        "expired before they were read" if STREAM_READER_GETS_LIMITS else "a batch needs, are gone"
    )
    refused(stream(growing.root), tmp_path / "3", words)
    assert Query(stream(growing.root, failOnDataLoss=False), tmp_path / "3").run()


def test_a_join_with_a_static_table(growing, stream, tmp_path, spark):
    growing.put(40)
    names = spark.createDataFrame(
        [("Topic0", "even"), ("Topic1", "odd")], "topic string, name string"
    )
    frame = stream(growing.root).join(names, "topic").groupBy("name").count()
    query = (
        frame.writeStream.format("memory")
        .queryName("joined")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        growing.put(2)
        query.processAllAvailable()
        rows = {tuple(row) for row in spark.table("joined").collect()}
    finally:
        query.stop()
    assert rows == {("even", 21), ("odd", 21)}


def test_a_mirror_through_the_sink_equals_its_source(growing, stream, tmp_path, spark):
    mirror = tmp_path / "mirror"
    growing.put(30)

    def run():
        query = (
            stream(growing.root)
            .writeStream.format("rocketmq-store")
            .option("path", str(mirror))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for count in (0, 25, 1):
        growing.put(count)
        run()
    found = compare_stores(parsed(growing.root), parsed(mirror))
    assert (found.rows[:2], found.same) == ([], 56)
