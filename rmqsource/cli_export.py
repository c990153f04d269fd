"""How ``export`` runs Spark, shows how far it is, and says what went wrong."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from rmqsource.cli_read import WrongUseError
from rmqsource.local_spark import java_problem, quiet_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqsource.cli_report import Report

_PARTITIONS = ("topic", "day")
_POLL_SECONDS = 0.3
_OWN_ERRORS = ("rmqsource.errors.", "store_core.errors.")


def export_messages(
    options: Mapping[str, str], target: Path, file_format: str, partition_by: str, report: Report
) -> None:
    """Write the messages that the options select.

    Raises
    ------
    WrongUseError
        No Java, an unknown partition, or something is at the target already.
    """
    partitions = [name.strip() for name in partition_by.split(",") if name.strip()]
    unknown = [name for name in partitions if name not in _PARTITIONS]
    if unknown:
        raise WrongUseError(f"--partition-by: {unknown[0]!r} is neither topic nor day")
    problem = java_problem()
    if problem:
        raise WrongUseError(problem)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WrongUseError(f"--output {target}: exists already; give a new directory")
    with tempfile.TemporaryDirectory() as scratch, _own_stderr() as terminal:
        log = Path(scratch) / "spark.log"
        with quiet_session(log, "rocketmq-store export", "local[*]") as spark:
            _run(spark, options, target, file_format, partitions, terminal)
    report.rows = 1
    files = [path for path in target.rglob("part-*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    report.note(f"{target}: {len(files):,} files, {size:,} bytes")


def _run(
    spark: Any,
    options: Mapping[str, str],
    target: Path,
    file_format: str,
    partitions: list[str],
    terminal: Any,
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 (Spark takes a while to import)

    from rmqsource.export_store import export, read_for_export  # noqa: PLC0415

    try:
        with _task_progress(spark, terminal):
            export(read_for_export(spark, options), target, file_format, partitions)
    except PySparkException as err:
        raise WrongUseError(_reason(err)) from err
    except OSError as err:
        raise WrongUseError(f"--output {target}: {err.strerror or err}") from err


def _reason(err: Exception) -> str:
    """Return what the source itself says, or else the first line of what Spark says."""
    lines = str(err).splitlines()
    own = [line for line in lines if line.startswith(_OWN_ERRORS)]
    return own[-1].split(": ", 1)[-1] if own else lines[0] if lines else type(err).__name__


@contextmanager
def _own_stderr() -> Iterator[Any]:
    """Give a stream to the terminal that stays when Spark's own output is sent elsewhere."""
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as stream:
        yield stream


@contextmanager
def _task_progress(spark: Any, terminal: Any) -> Iterator[None]:
    """Show a bar of finished tasks while the block runs, only for a person who watches."""
    if not terminal.isatty():
        yield
        return
    done = threading.Event()
    with Progress(console=Console(file=terminal), transient=True) as bar:
        task = bar.add_task("exporting", total=None)

        def watch() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not done.wait(_POLL_SECONDS):
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        bar.update(task, total=info.numTasks, completed=info.numCompletedTasks)

        watcher = threading.Thread(target=watch, name="export-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
