"""Spark Connect: the client hands the source over, and the server's Python runs it."""

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
from tests.rmqsource.stream.growing_store import GrowingStore

_CLIENT = """
import json, sys
from pyspark.sql import SparkSession
import rmqsource

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
print("ANSWER", json.dumps(answer), flush=True)
spark.stop()
"""
_STREAM_CLIENT = """
import json, sys
from pyspark.sql import SparkSession
import rmqsource

spark = SparkSession.builder.remote("local[1]").getOrCreate()
rmqsource.register(spark)
root, rows, checkpoint, limits = sys.argv[1:]
frame = spark.readStream.format("rocketmq-store").options(**json.loads(limits)).load(root)
columns = frame.selectExpr("cast(body AS string) AS body").writeStream.format("parquet")
columns = columns.option("path", rows).option("checkpointLocation", checkpoint)
query = columns.trigger(availableNow=True).start()
query.awaitTermination()
bodies = [row["body"] for row in spark.read.parquet(rows).collect()]
print("ANSWER", json.dumps(bodies), flush=True)
spark.stop()
"""
NEEDED = ("grpc", "grpc_status", "pandas")
LIMIT = 20

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in NEEDED),
        reason="pyspark[connect] is not installed",
    ),
]


def test_connect(tmp_path):
    store = golden("onefile-5x")
    topics = {}
    for message in store.dump("messages"):
        topics[message["topic"]] = topics.get(message["topic"], 0) + 1
    answer = answer_of(_CLIENT, tmp_path, store.root, json.dumps(store.options))
    assert answer == {**topics, "error": True}


def test_a_stream_has_every_message_once_over_restarts_of_the_server(tmp_path):
    limits = {"maxOffsetsPerTrigger": LIMIT} if STREAM_READER_GETS_LIMITS else {}
    checkpoint = tmp_path / "checkpoint"
    places = (tmp_path / "rows", checkpoint, json.dumps(limits))
    with GrowingStore(tmp_path / "store") as growing:
        for run, (count, batches) in enumerate([(50, 3), (25, 5)], 1):
            growing.put(count)
            found = answer_of(_STREAM_CLIENT, tmp_path, growing.root, *places)
            assert sorted(found) == sorted(body.decode() for body in growing.put_bodies)
            noted = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
            assert len(noted) == (batches if limits else run)


def answer_of(client, directory, *arguments):
    """Run a client and a server of its own; return what the client printed."""
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
