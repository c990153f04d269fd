"""A Spark session on this machine for commands: quiet, with the source registered."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


def java_problem() -> str:
    """Return why Spark could not start for want of Java; empty if it can."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = "Install a JDK or JRE of version 17 or newer, or set JAVA_HOME to one."
    if java is None:
        return f"Spark needs Java, and there is none on PATH. {advice}"
    try:
        subprocess.run([java, "-version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as err:
        return f"Spark needs Java, but {java} does not run ({err}). {advice}"
    return ""


@contextmanager
def quiet_session(
    log: Path,
    name: str,
    master: str = "local[2]",
    settings: Mapping[str, str] | None = None,
    ready: Callable[[], None] = lambda: None,
) -> Iterator[Any]:
    """Start Spark; whatever it and Java print goes to a file.

    Where the block ends by an error, the JVM is ended too; the process cannot start another one.

    Parameters
    ----------
    log
        The file; beside it Spark may keep what it needs while it runs.
    name
        Name of the application.
    master
        Which cores it takes.
    settings
        Settings of Spark beside the usual ones.
    ready
        Is called when Spark has started, or could not.
    """
    # The JVM and its workers inherit these, so they are set before it starts.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 (after the checks)

        builder = SparkSession.builder.master(master).appName(name)
        for key, value in {**_SETTINGS, **(settings or {})}.items():
            builder = builder.config(key, value)
        try:
            spark = builder.config("spark.sql.warehouse.dir", str(log.parent)).getOrCreate()
        finally:
            ready()
        try:
            _register(spark)
            yield spark
        except BaseException:
            _end(spark)
            raise
        spark.stop()
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def _end(spark: Any) -> None:
    """Stop Spark and its JVM: tasks outlive the job that failed, and may still write."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    try:
        spark.stop()
    finally:
        if process is not None:
            process.stdin.close()  # at which it ends
            process.wait()


def _register(spark: Any) -> None:
    from rmqsource import register  # noqa: PLC0415 (after the checks)

    register(spark)
