# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest
from pyspark.sql.types import StructType

from bench.empty_source import EMPTY, EmptySource
from bench.idle_stream import IdleStream
from bench.ready_columns import ready_batch
from bench.ready_source import READY, ReadySource
from bench.ready_stream import ReadyStream
from rmqsource.schema import table_schema
from rmqsource.spark_compat import to_arrow_schema

OPTIONS = {"rows": "1000", "partitions": "3", "rowsPerBatch": "64", "bodyBytes": "10"}


def test_the_idle_stream_stays_where_it_is():
    reader = IdleStream({}).streamReader(StructType())
    start = reader.initialOffset()
    assert reader.latestOffset(start, None) == start
    assert reader.partitions(start, start) == []


def test_each_batch_of_the_ready_stream_is_one_row_with_the_time_it_was_made():
    schema = table_schema("messages", "FAILFAST")
    reader = ReadyStream({}).streamReader(schema)
    before = time.monotonic_ns()
    end = reader.latestOffset(reader.initialOffset(), None)
    assert reader.latestOffset(end, None) != end
    (partition,) = reader.partitions(reader.initialOffset(), end)
    (batch,) = reader.read(partition)
    assert batch.schema == to_arrow_schema(schema)
    assert batch.num_rows == 1
    assert before <= int(batch.column("body")[0].as_py()) <= time.monotonic_ns()


def test_a_ready_batch_has_every_column_of_the_table():
    schema = table_schema("messages", "FAILFAST")
    batch = ready_batch(schema, 50, 10)
    assert batch.schema == to_arrow_schema(schema)
    assert batch.num_rows == 50
    assert {len(body) for body in batch.column("body").to_pylist()} == {10}
    assert batch.column("keys").to_pylist()[0] == ["order500000"]


def test_partitions_hold_all_rows_in_batches_of_the_size_asked_for():
    reader = ReadySource(OPTIONS).reader(table_schema("messages", "FAILFAST"))
    sizes = [[b.num_rows for b in reader.read(part)] for part in reader.partitions()]
    assert [sum(part) for part in sizes] == [333, 333, 334]
    assert all(set(part[:-1]) == {64} for part in sizes)


def test_the_empty_source_yields_nothing():
    reader = EmptySource({}).reader(StructType())
    assert [list(reader.read(part)) for part in reader.partitions()] == [[]]


@pytest.mark.spark
def test_spark_takes_both(spark):
    schema = table_schema("messages", "FAILFAST")
    spark.dataSource.register(ReadySource)
    spark.dataSource.register(EmptySource)
    ready = spark.read.format(READY).schema(schema).options(**OPTIONS).load()
    assert ready.count() == 1000
    assert spark.read.format(EMPTY).schema(schema).load().collect() == []
