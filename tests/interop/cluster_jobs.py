# SPDX-License-Identifier: Apache-2.0
"""A driver program that takes one job a line on standard input, and answers with a line of JSON.

``spark-submit`` gives its programs no input; there the jobs come from a file, and the answers go to
a file. The program runs in environments that have Spark, but perhaps neither the package nor the
tests, so it imports neither. Code that tasks run is pickled by value, as in any program that is
started by its file name.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

FORMAT = "rocketmq-store"
ROW_BYTES = 1000  # so that a few rows fill the buffers between Spark's processes


def register(spark: Any) -> None:
    """Register the formats."""
    import rmqsource

    rmqsource.register(spark)


def add_files(spark: Any, path: str) -> None:
    """Upload a Python file, or an archive of some, to the server and on to the executors."""
    spark.addArtifacts(path, pyfile=True)


def environments(spark: Any, tasks: int) -> list[list[str]]:
    """Return each Python that runs tasks, and the location of its package."""

    def describe(batches: Any) -> Any:
        import importlib.util
        import sys
        import time

        import pyarrow as pa

        for _ in batches:
            time.sleep(0.2)  # otherwise one executor may do all of it
        found = importlib.util.find_spec("rmqsource")
        yield pa.RecordBatch.from_pylist(
            [{"python": sys.prefix, "package": str(found.origin) if found else ""}]
        )

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(describe, "python string, package string")
    return sorted({tuple(row) for row in rows.collect()})  # type: ignore[arg-type]


def read(
    spark: Any,
    path: str,
    columns: list[str],
    options: dict[str, str],
    schema: str | None = None,
    gate: dict[str, Any] | None = None,
) -> list[list[Any]]:
    """Return the rows of a read whose tasks go through a gate."""
    reader = spark.read.format(FORMAT).options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    frame = _gated(reader.load(path).selectExpr(*columns), gate)
    return [[_plain(value) for value in row] for row in frame.collect()]


def write(
    spark: Any,
    path: str,
    topic: str,
    rows: int,
    partitions: int,
    options: dict[str, str],
    gate: dict[str, Any] | None = None,
) -> None:
    """Write numbered messages with tasks that go through a gate."""
    numbers = spark.range(0, rows, 1, partitions).selectExpr(
        f"'{topic}' AS topic",
        f"rpad(cast(id AS string), {ROW_BYTES}, '.') AS body",
        "array(concat('k', id)) AS keys",
        "cast(id % 4 AS int) AS queue_id",
    )
    _gated(numbers, gate).write.format(FORMAT).mode("append").options(**options).save(path)


def mirror(
    spark: Any,
    path: str,
    sink: str,
    checkpoint: str,
    options: dict[str, str],
    sink_options: dict[str, str],
    gate: dict[str, Any] | None = None,
) -> None:
    """Copy the messages of a store into another one with a stream."""
    frame = spark.readStream.format(FORMAT).options(**options).load(path)
    columns = ["topic", "body", "keys", "tags", "queue_id", "unique_key"]
    query = (
        _gated(frame.selectExpr(*columns), gate)
        .writeStream.format(FORMAT)
        .options(**sink_options)
        .option("path", sink)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _gated(frame: Any, gate: dict[str, Any] | None) -> Any:
    """Return the rows; a gate stops the attempts of one task in the middle.

    A gate has a directory that all nodes see, a `partition`, and a number of `rows` after which
    attempts stop. Each attempt writes its identity there. If `meet` is 0, the first attempt waits
    for file ``go``, and others pass; else each attempt waits until there are so many.
    """
    if gate is None:
        return frame

    def hold(batches: Any) -> Any:
        import sys
        import time
        from pathlib import Path

        from pyspark import TaskContext

        directory, context, seen = Path(gate["directory"]), TaskContext.get(), 0
        is_open = context is None or context.partitionId() != gate["partition"]
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if is_open or seen < gate["rows"]:
                continue
            is_open = True
            attempt = directory / f"attempt-{context.attemptNumber()}"
            attempt.with_suffix(".new").write_text(sys.prefix)
            attempt.with_suffix(".new").rename(attempt)
            if gate["meet"]:
                while sum(1 for _ in directory.glob("attempt-?")) < gate["meet"]:
                    time.sleep(0.05)
            elif context.attemptNumber() == 0:
                while not (directory / "go").exists():
                    time.sleep(0.05)

    return frame.mapInArrow(hold, frame.schema)


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value


_JOBS = (register, add_files, environments, read, write, mirror)


def main() -> None:
    """Run jobs until the input ends."""
    address, *files = sys.argv[1:]
    if files:
        jobs_file, answers_file = files
        questions = iter(Path(jobs_file).read_text("utf-8").splitlines())
        answers = os.fdopen(os.open(answers_file, os.O_WRONLY | os.O_CREAT), "w")
    else:
        questions, answers = iter(sys.stdin), os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # Spark's own output is no answer
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    builder = builder.remote(address) if address.startswith("sc://") else builder.master(address)
    spark = builder.appName("cluster-jobs").getOrCreate()
    jobs = {job.__name__: job for job in _JOBS}
    for line in questions:
        values = json.loads(line)
        try:
            answer = {"answer": jobs[values.pop("do")](spark, **values)}
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    spark.stop()


if __name__ == "__main__":
    main()
