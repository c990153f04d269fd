# SPDX-License-Identifier: Apache-2.0
"""Run a Spark job for a command: show its progress, and report its errors briefly."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqsource.cli.read import WrongUseError, check_for_spark
from rmqsource.cli.report import cancelling, shown_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from rmqsource.cli.report import Report

_POLL_SECONDS = 0.3
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OWN_ERRORS = ("rmqsource.errors.", "rmqsource.sink.errors.", "store_core.errors.")
_PARTITIONS = ("topic", "day")
_SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def spark_job(command: str, doing: str) -> Iterator[Any]:
    """Yield a session for one job on all cores; Spark's errors become those of the command.

    If the block ends with an error or Ctrl-C, Spark no longer runs afterwards.

    Raises
    ------
    WrongUseError
        There is no Java, or Spark failed.
    """
    problem = java_problem()
    if problem:
        raise WrongUseError(problem)
    with tempfile.TemporaryDirectory() as scratch, _own_stderr() as terminal:
        log = Path(scratch) / "spark.log"
        starting = _starting(terminal)
        with quiet_session(log, f"rocketmq-store {command}", "local[*]", ready=starting) as spark:
            # Spark takes a while to load; py4j has no types.
            from py4j.protocol import (  # type: ignore[import-untyped]  # noqa: PLC0415
                Py4JJavaError,
            )
            from pyspark.errors import PySparkException  # noqa: PLC0415

            def tell(text: str) -> None:
                print(f"rocketmq-store: {text}", file=terminal, flush=True)

            try:
                with cancelling(spark, tell), _task_progress(spark, terminal, doing):
                    yield spark
            except (PySparkException, Py4JJavaError) as err:
                raise WrongUseError(reason_of(err)) from err


def tasks_of(stages: Mapping[int, tuple[int, int]], active: Collection[int]) -> tuple[int, int]:
    """Return how many tasks of all stages seen so far are done, and how many there are.

    A stage that is no longer active counts as done, so that a bar never moves back to the start.
    """
    finished = sum(done if number in active else all_ for number, (done, all_) in stages.items())
    return finished, sum(all_ for _, all_ in stages.values())


def reason_of(err: Exception) -> str:
    """Return the source's own error text, or else the first line of Spark's."""
    java = getattr(err, "java_exception", None)
    text = str(err) if java is None else java.getMessage() or ""
    lines = text.splitlines()
    own = [line for line in lines if line.startswith(_OWN_ERRORS)]
    raised = _RAISED.search(text)
    if raised and not own:
        return raised[1]
    return own[-1].split(": ", 1)[-1] if own else lines[0] if lines else type(err).__name__


@contextmanager
def _own_stderr() -> Iterator[Any]:
    """Yield a stream to the terminal that remains when Spark's output is redirected."""
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as stream:
        yield stream


def _starting(terminal: Any) -> Callable[[], None]:
    """Show on a terminal that Spark is starting; return the function that removes the text."""
    if not terminal.isatty():
        return lambda: None
    print("starting Spark …", end="", file=terminal, flush=True)
    return lambda: print("\r\x1b[K", end="", file=terminal, flush=True)


@contextmanager
def _task_progress(spark: Any, terminal: Any, doing: str) -> Iterator[None]:
    """Show a bar of finished tasks while the block runs, only on a terminal."""
    if not terminal.isatty():
        yield
        return
    done = threading.Event()
    with shown_progress(terminal=terminal) as bar:
        task = bar.add_task(doing, total=None)

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            stages: dict[int, tuple[int, int]] = {}
            while not done.wait(_POLL_SECONDS):
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        stages[stage] = (info.numCompletedTasks, info.numTasks)
                finished, total = tasks_of(stages, set(tracker.getActiveStageIds()))
                if total:
                    bar.update(task, total=total, completed=finished)

        watcher = threading.Thread(target=watch, name="job-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def checked_partitions(names: Sequence[str]) -> list[str]:
    """Return the columns by which to make directories; WrongUseError for any other name."""
    for name in names:
        if name not in _PARTITIONS:
            raise WrongUseError(f"--partition-by: {name!r} is neither topic nor day")
    return list(names)


def check_target(target: Path) -> None:
    """Raise `WrongUseError` if no files can be written, before Spark starts."""
    check_for_spark("--output", target)
    try:
        if target.is_dir() and not any(target.iterdir()):
            return
        if target.exists():
            raise WrongUseError(f"--output {target}: exists already; give a new directory")
        place = next(parent for parent in target.absolute().parents if parent.exists())
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise WrongUseError(f"--output {target}: no directory can be created in {place}")
    except OSError as err:
        raise WrongUseError(f"--output {target}: {err.strerror or err}") from err


def export_messages(
    options: Mapping[str, str],
    target: Path,
    file_format: str,
    partitions: Sequence[str],
    report: Report,
) -> None:
    """Write the messages that the options select.

    Raises
    ------
    WrongUseError
        There is no Java, Spark failed, or the target cannot be written.
    """
    # Needs Spark's modules, which take a while to load.
    from rmqsource.transfer.export_store import new_directory, write_export  # noqa: PLC0415

    try:
        # Spark ends first: a task could still write.
        with new_directory(target) as place, spark_job("export", "exporting") as spark:
            done = write_export(spark, options, place, file_format, partitions, report.damage)
    except OSError as err:
        raise WrongUseError(f"--output {target}: {err.strerror or err}") from err
    report.rows = done.messages
    if done.gaps:
        report.damage(f"{done.gaps:,} places cannot be read; the files lack what was there")
    files = [path for path in target.rglob("part-*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    report.note(f"{target}: {done.messages:,} messages in {len(files):,} files, {size:,} bytes")


def java_problem() -> str:
    """Return why Spark cannot start without a working Java; empty if it can."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = "Install a JDK or JRE of version 17 or newer, or set JAVA_HOME to one."
    if java is None:
        return f"Spark needs Java, but there is none on PATH. {advice}"
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
    """Start Spark; everything that it and Java print goes to a file.

    If the block ends with an error, the JVM is stopped too; the process cannot start another one.
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
    """Stop Spark and its JVM: tasks outlive a failed job, and may still write."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    try:
        spark.stop()
    finally:
        if process is not None:
            process.stdin.close()  # which makes it exit
            process.wait()


def _register(spark: Any) -> None:
    from rmqsource import register  # noqa: PLC0415 (after the checks)

    register(spark)
