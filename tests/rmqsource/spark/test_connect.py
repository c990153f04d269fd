"""Spark Connect: the client hands the source over, and the server's Python runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.golden_store import golden

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
NEEDED = ("grpc", "grpc_status", "pandas")


@pytest.mark.spark
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in NEEDED),
    reason="pyspark[connect] is not installed",
)
def test_connect(tmp_path):
    store = golden("onefile-5x")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment.pop("SPARK_REMOTE", None)
    done = subprocess.run(
        [sys.executable, "-c", _CLIENT, str(store.root), json.dumps(store.options)],
        cwd=tmp_path,
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
    topics = {}
    for message in store.dump("messages"):
        topics[message["topic"]] = topics.get(message["topic"], 0) + 1
    assert line.startswith("ANSWER"), line
    assert json.loads(line[len("ANSWER") :]) == {**topics, "error": True}
