# SPDX-License-Identifier: Apache-2.0
"""Spark applications to be killed: ``python -m tests.rmqsource.sink.spark_jobs WHAT …``."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any

from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from tests.conftest import SPARK_SETTINGS
from tests.rmqsource.sink.killed_sink import APPLICATION, SIZES, batches_of

READY = "ready"
_PARTITIONS = 2
_MOST_MIRRORED_AT_ONCE = 40


def write_versions(root: str, first: str) -> None:
    """Write one job after the other, forever; report when the first begins."""
    spark = _session()
    for version in itertools.count(int(first)):
        batches = [batch for batch in batches_of(version) if batch.num_rows]
        rows = [row for batch in batches for row in batch.to_pylist()]
        schema = "topic string, body binary, keys array<string>, tags string"
        frame = spark.createDataFrame(rows, schema).repartitionByRange(_PARTITIONS, "body")
        if version == int(first):
            frame.count()
            sys.stdout.write(f"{READY}\n")
            sys.stdout.flush()
        writer = frame.write.format("rocketmq-store").mode("append").options(**SIZES)
        writer.options(txnAppId=APPLICATION, txnVersion=version).save(root)


def stream(root: str, source: str, checkpoint: str, pids: str) -> None:
    """Append the rows of a directory of JSON files; record the running processes before."""
    spark = _session()
    java = spark.sparkContext._gateway.proc.pid
    Path(pids).write_text(f"{java} {os.getpid()}")
    rows = spark.readStream.schema("topic string, body string").json(source)
    query = (
        rows.writeStream.format("rocketmq-store")
        .options(**SIZES)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(root)
    )
    query.awaitTermination()


def mirror(root: str, target: str, checkpoint: str, trigger: str) -> None:
    """Mirror a store into another one; report when the query begins.

    Trigger ``follow`` goes on forever, ``end`` stops at the present end.
    """
    spark = _session()
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    reader = spark.readStream.format("rocketmq-store")
    if STREAM_READER_GETS_LIMITS:
        reader = reader.option("maxOffsetsPerTrigger", _MOST_MIRRORED_AT_ONCE)
    writer = reader.load(root).writeStream.format("rocketmq-store").options(**SIZES)
    if trigger == "end":
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", checkpoint).start(target)
    query.awaitTermination()


def _session() -> Any:
    from pyspark.sql import SparkSession

    import rmqsource

    builder = SparkSession.builder.master(f"local[{_PARTITIONS}]")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    rmqsource.register(spark)
    return spark


if __name__ == "__main__":
    {"write": write_versions, "stream": stream, "mirror": mirror}[sys.argv[1]](*sys.argv[2:])
