# SPDX-License-Identifier: Apache-2.0
"""One Spark session of a process, which commands use instead of starting their own."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from rmqsource import register
from rmqsource.cli import job
from rmqsource.cli import job as cli_job
from tests.hostile.base_stores import scratch_parent

SCRATCH_VARIABLE = "HOSTILE_SCRATCH"
"""Environment variable: a directory that the parent removes when the process has ended."""

_SETTINGS = {
    "spark.driver.memory": "1g",
    # Logs where memory was not enough, and keeps little of the hundreds of earlier commands.
    "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@functools.cache
def session() -> Any:
    """Return the session; the first call starts it."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    parent = os.environ.get(SCRATCH_VARIABLE)
    scratch = tempfile.mkdtemp(prefix="spark-", dir=parent or scratch_parent())
    if parent is None:
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    builder = SparkSession.builder.master("local[1]").appName("hostile")
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.local.dir", scratch)
    spark = builder.config("spark.sql.warehouse.dir", scratch).getOrCreate()
    register(spark)
    return spark


@contextmanager
def commands_share_it() -> Iterator[None]:
    """Give the session to commands of the command line that would start and end their own."""

    @contextmanager
    def shared(*_: object, **__: object) -> Iterator[Any]:
        yield session()

    @contextmanager
    def stderr() -> Iterator[Any]:  # of a command that runs in this process
        yield sys.stderr

    with (
        mock.patch.object(cli_job, "quiet_session", shared),
        mock.patch.object(cli_job, "_own_stderr", stderr),
        mock.patch.object(cli_job, "java_problem", functools.cache(job.java_problem)),
    ):
        yield


def worker_processes() -> list[int]:
    """Return the Python processes below this one: Spark reads and stages in them."""
    found, waiting = [], [os.getpid()]
    while waiting:
        for task in _children(waiting.pop()):
            waiting.append(task)
            with suppress(OSError):
                if b"\0-m\0pyspark." in Path(f"/proc/{task}/cmdline").read_bytes():
                    found.append(task)
    return found


def _children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):
            with suppress(OSError):
                text = Path(f"/proc/{process}/task/{task}/children").read_text()
                found += map(int, text.split())
    return found
