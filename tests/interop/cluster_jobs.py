"""The program of a driver: obeys its standard input, a job a line, answered by a line of JSON.

It runs in environments that have Spark, and may not have the package or the tests: it imports
neither.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

FORMAT = "rocketmq-store"


def run_job(spark: Any, name: str, values: dict[str, Any]) -> Any:
    return globals()[name](spark, **values)


def register(spark: Any) -> str:
    import rmqsource

    rmqsource.register(spark)
    return os.path.dirname(rmqsource.__file__)


def environments(spark: Any, tasks: int) -> list[list[str]]:
    """Return of each task the executor's id, its Python, and where its package lies."""

    def describe(batches: Any) -> Any:
        import importlib.util

        import pyarrow as pa
        from pyspark import SparkFiles

        for _ in batches:
            time.sleep(0.3)
        found = importlib.util.find_spec("rmqsource")
        origin = str(found.origin) if found else ""
        executor = SparkFiles.getRootDirectory()
        yield pa.RecordBatch.from_pylist(
            [{"executor": executor, "python": sys.prefix, "package": origin}]
        )

    rows = spark.range(tasks, numPartitions=tasks).mapInArrow(
        describe, "executor string, python string, package string"
    )
    return sorted({tuple(row) for row in rows.collect()})


def read(spark: Any, path: Any, columns: list[str], options: dict[str, str]) -> list[list[Any]]:
    frame = spark.read.format(FORMAT).options(**options).load(path).selectExpr(*columns)
    return [[_plain(value) for value in row] for row in frame.collect()]


def count_partitions(spark: Any, path: str, options: dict[str, str]) -> int:
    return spark.read.format(FORMAT).options(**options).load(path).rdd.getNumPartitions()


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(sys.argv[1]).appName("cluster-jobs").getOrCreate()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"answer": run_job(spark, command.pop("do"), command)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
