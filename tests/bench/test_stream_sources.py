from __future__ import annotations

import time

from pyspark.sql.types import StructType

from bench.idle_stream import IdleStream
from bench.ready_stream import ReadyStream
from rmqsource.schema import arrow_schema, table_schema


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
    assert batch.schema == arrow_schema(schema)
    assert batch.num_rows == 1
    assert before <= int(batch.column("body")[0].as_py()) <= time.monotonic_ns()
