# SPDX-License-Identifier: Apache-2.0
"""Spark Connect: the client passes the source on, and the server's Python runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from tests.conftest import ROOT
from tests.golden_store import golden

_CLIENT = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
import rmqsource
from tests.rmqsource.stream.growing_store import GrowingStore

spark = SparkSession.builder.remote("local[1]").getOrCreate()
rmqsource.register(spark)
root, options = sys.argv[1], json.loads(sys.argv[2])
frame = spark.read.format("rocketmq-store").options(**options).load(root)
counts = frame.groupBy("topic").count().collect()
answer = {row["topic"]: row["count"] for row in counts}
try:
    spark.read.format("rocketmq-store").option("topik", "x").load(root).count()
except Exception as err:
    answer["error"] = "did you mean 'topic'" in str(err)

limits = json.loads(sys.argv[4])
stream = spark.readStream.format("rocketmq-store").options(**limits)
answer["stream"] = []
with GrowingStore(Path(sys.argv[3])) as growing:
    for count in (50, 25):  # the second query goes on where the first one was
        growing.put(count)
        frame = stream.load(sys.argv[3]).selectExpr("cast(body AS string) AS body")
        writer = frame.writeStream.format("parquet").option("path", "rows")
        query = writer.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
        found = [row["body"] for row in spark.read.parquet("rows").collect()]
        is_whole = sorted(found) == sorted(body.decode() for body in growing.put_bodies)
        batches = [name for name in os.listdir("checkpoint/commits") if name.isdigit()]
        answer["stream"].append([is_whole, len(batches)])
print("ANSWER", json.dumps(answer), flush=True)
spark.stop()
"""
NEEDED = ("grpc", "grpc_status", "pandas")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in NEEDED),
        reason="pyspark[connect] is not installed",
    ),
]


def test_a_batch_and_a_stream(tmp_path):
    store = golden("onefile-5x")
    topics = {}
    for message in store.dump("messages"):
        topics[message["topic"]] = topics.get(message["topic"], 0) + 1
    limits = {"maxOffsetsPerTrigger": 20} if STREAM_READER_GETS_LIMITS else {}
    arguments = (store.root, json.dumps(store.options), tmp_path / "store", json.dumps(limits))
    answer = answer_of(_CLIENT, tmp_path, *arguments)
    batches = [[True, 3], [True, 5]] if limits else [[True, 1], [True, 2]]
    assert answer == {**topics, "error": True, "stream": batches}


def answer_of(client, directory, *arguments):
    """Run a client and a server of its own; return the client's output."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("SPARK_REMOTE", None)
    done = subprocess.run(
        [sys.executable, "-c", client, *map(str, arguments)],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    (line,) = [x for x in done.stdout.splitlines() if x.startswith("ANSWER")] or [
        done.stderr[-3000:]
    ]
    assert line.startswith("ANSWER"), line
    return json.loads(line[len("ANSWER") :])
