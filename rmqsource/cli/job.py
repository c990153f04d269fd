"""Run a Spark job for a command: show how far it is, say in few words what went wrong."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqsource.cli.interrupt import cancelling
from rmqsource.cli.local_spark import java_problem, quiet_session
from rmqsource.cli.read import WrongUseError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

_POLL_SECONDS = 0.3
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_OWN_ERRORS = ("rmqsource.errors.", "rmqsource.sink.errors.", "store_core.errors.")


@contextmanager
def spark_job(command: str, doing: str) -> Iterator[Any]:
    """Give a session for one job on all cores; Spark's errors become those of the command.

    When the block was left by an error or Ctrl-C, nothing of Spark runs any more afterwards.

    Parameters
    ----------
    command
        Name of the command.
    doing
        What the bar of finished tasks says, for a person who watches.

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
    """Return how many tasks of all stages seen are done, and how many there are.

    A stage that is no longer active is done, so that a bar never goes back to the begin.
    """
    finished = sum(done if number in active else all_ for number, (done, all_) in stages.items())
    return finished, sum(all_ for _, all_ in stages.values())


def reason_of(err: Exception) -> str:
    """Return what the source itself says, or else the first line of what Spark says."""
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
    """Give a stream to the terminal that stays when Spark's own output is sent elsewhere."""
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as stream:
        yield stream


def _starting(terminal: Any) -> Callable[[], None]:
    """Say to a person who watches that Spark starts; return what takes that away."""
    if not terminal.isatty():
        return lambda: None
    print("starting Spark …", end="", file=terminal, flush=True)
    return lambda: print("\r\x1b[K", end="", file=terminal, flush=True)


@contextmanager
def _task_progress(spark: Any, terminal: Any, doing: str) -> Iterator[None]:
    """Show a bar of finished tasks while the block runs, only for a person who watches."""
    if not terminal.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 (for a person only)
    from rich.progress import Progress  # noqa: PLC0415

    done = threading.Event()
    with Progress(console=Console(file=terminal), transient=True) as bar:
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
