# SPDX-License-Identifier: Apache-2.0
"""The Spark session of the benchmarks, and the timing of jobs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from pyspark.sql import SparkSession

from bench.empty_source import EmptySource
from bench.idle_stream import IdleStream
from bench.ready_source import ReadySource
from bench.ready_stream import ReadyStream
from rmqsource import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame


def make_session() -> SparkSession:
    """Return a local session of two cores with all sources registered."""
    # The workers import this package and the project from the same place as the driver.
    project = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (project, os.environ.get("PYTHONPATH")))
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Planning workers import the project again for each job: compiled, like an installed one.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("bench")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    for source in (ReadySource, EmptySource, ReadyStream, IdleStream):
        spark.dataSource.register(source)
    return spark


def java_pid(spark: SparkSession) -> int:
    """Return the process of the session's JVM."""
    java: Any = spark.sparkContext._jvm  # the only way to it
    return int(java.java.lang.ProcessHandle.current().pid())


def run_to_noop(frame: DataFrame) -> None:
    """Read every row and column and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def seconds_of(job: Callable[[], Any]) -> float:
    """Return the seconds that a job takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def alternate(
    jobs: Sequence[Callable[[], Any]],
    runs: int,
    warm_up: int = 1,
    before: Callable[[], Any] = lambda: None,
) -> list[list[float]]:
    """Run the jobs in turn, so that all meet the same noise; return the seconds of each.

    Preparations before each job are not timed.
    """
    times: list[list[float]] = [[] for _ in jobs]
    for number in range(warm_up + runs):
        for job, seconds in zip(jobs, times):
            before()
            taken = seconds_of(job)
            if number >= warm_up:
                seconds.append(taken)
    return times
