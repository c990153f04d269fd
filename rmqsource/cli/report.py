# SPDX-License-Identifier: Apache-2.0
"""Output of the commands besides rows: notes, damage, errors, progress, exit codes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from rmqsource.cli.read import WrongUseError, lost_ends, lost_logs, unknown_topics
from rmqsource.errors import (
    DamagedStoreError,
    DataLossError,
    SourceError,
    SourceOptionError,
)
from rmqsource.exit_codes import FOUND, GOOD, INTERRUPTED, NOT_DONE
from rmqsource.live.errors import ClusterError
from rmqsource.safe_text import printable
from store_core.errors import (
    StoreConfigError,
    StoreError,
    StoreKindError,
    StoreLockedError,
    StoreNotFoundError,
    StoreReadError,
    StoreWriteError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from rmqsource.options.source_options import SourceOptions

_NOT_DONE = (
    *(WrongUseError, SourceOptionError, StoreConfigError, ClusterError),
    *(StoreKindError, StoreNotFoundError, StoreReadError, StoreWriteError, StoreLockedError),
    OSError,  # of a file outside stores, such as an imported file or a report
)
_MOST_CHARACTERS = 1600
_AGAIN_SECONDS = 0.2


class Report:
    """The output of a command on standard error, and its exit code."""

    def __init__(self) -> None:
        self.rows = 0
        self.exit_code = GOOD
        self.damages: list[str] = []

    def note(self, *texts: str) -> None:
        """Print texts, a line each, without changing the exit code."""
        for text in texts:
            print(printable(text.replace("\n", " ")), file=sys.stderr)

    def damage(self, text: str) -> None:
        """Report damage; a repeated text is printed only once."""
        if text in self.damages:
            return
        self.damages.append(text)
        self.end_with(FOUND)
        self.note(f"damage: {text}")

    def missing(self, *texts: str) -> None:
        """Report things that were requested but do not exist, a line each."""
        if texts:
            self.end_with(FOUND)
            self.note(*texts)

    def tell_missing(self, *options: SourceOptions, seen: Collection[str] = ()) -> None:
        """Report topics that the options name and logs of their stores that are missing.

        ``seen`` are the topics of messages that were read.
        """
        for text in (*lost_logs(*options), *lost_ends(*options)):
            self.damage(text)
        self.missing(*unknown_topics(*options, seen=seen))

    def not_read(self, text: str) -> None:
        """Report a part that may not be read."""
        self.end_with(NOT_DONE)
        self.note(f"not read: {text}")

    def end_with(self, code: int) -> None:
        """Raise the exit code to this one, unless it is greater already."""
        self.exit_code = max(self.exit_code, code)

    def nothing(self, text: str) -> None:
        """Report the text if the command has no rows."""
        if not self.rows:
            self.missing(text)

    def nothing_in(self, target: Path) -> None:
        """If there are no rows, report that the target is complete but has no message."""
        self.nothing(f"no message matches: {target} was written without any")

    def error(self, err: Exception) -> None:
        """Report why the command failed, and which option may help."""
        self.end_with(NOT_DONE if isinstance(err, _NOT_DONE) else FOUND)
        hint = ""
        if isinstance(err, DamagedStoreError):
            hint = ", here with --option mode=PERMISSIVE"
        elif isinstance(err, DataLossError):
            hint = ", here with --option failOnDataLoss=false"
        elif "option" in str(err) and not isinstance(err, WrongUseError):
            hint = ". Options are given as --option KEY=VALUE"
        text = str(err)
        if isinstance(err, OSError) and err.filename:
            text = f"{err.filename}: {err.strerror}"
        self.note(f"rocketmq-store: {_bounded(text)}{hint}")


def _bounded(text: str) -> str:
    """Return the beginning and end of a long message: some libraries write pages."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]} … {text[-half:]}"


class _Warnings(logging.Handler):
    """Prints warnings of the packages; any part of the process may warn, so no exit code is set."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report.note(record.getMessage())


class ProgressBars:
    """A bar on standard error for each stage of a long task, only if that is a terminal."""

    def __init__(self) -> None:
        self._bars = shown_progress() if sys.stderr.isatty() else None
        self._tasks: dict[str, Any] = {}

    def step(self, stage: str, done: int, total: int) -> None:
        """Show how much of a stage is done."""
        if self._bars is None:
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(stage, total=total)
            self._bars.start()
        self._bars.update(self._tasks[stage], completed=done, total=total)

    def splits(self, done: int, total: int) -> None:
        """Show how many splits have been read; a single one has no bar."""
        if total != 1:
            self.step("reading", done, total)

    def hide(self) -> None:
        """Remove the bars."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None


@contextmanager
def progress_bars() -> Iterator[ProgressBars]:
    """Yield bars, and remove them at the end."""
    bars = ProgressBars()
    try:
        yield bars
    finally:
        bars.hide()


@contextmanager
def changing_line(bar_cells: int = 0) -> Iterator[Callable[..., None]]:
    """Show a line on standard error, with a bar of so many cells; yield a function to change it."""
    from rich.progress import BarColumn, TextColumn  # noqa: PLC0415 (for a person only)

    bar = [BarColumn(bar_cells)] if bar_cells else []
    line = shown_progress(*bar, TextColumn("{task.description}"))
    task = line.add_task("", total=None)
    with line:
        yield partial(line.update, task)


def shown_progress(*columns: Any, terminal: Any = None) -> Any:
    """Return a ``rich`` progress display on a terminal, by default standard error."""
    from rich.console import Console  # noqa: PLC0415 (for a person only)
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(file=terminal, stderr=terminal is None)
    return Progress(*columns, console=console, transient=True)


@contextmanager
def reporting() -> Iterator[Report]:
    """Turn errors into lines on standard error and the exit code, warnings into lines alone."""
    report = Report()
    handler = _Warnings(report)
    loggers = [logging.getLogger(name) for name in ("rmqnet", "rmqsource", "store_core")]
    for logger in loggers:
        logger.addHandler(handler)
    if hasattr(sys.stdout, "reconfigure"):
        # Output for programs must not depend on the user's locale.
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    try:
        with interrupted_once():
            yield report
        sys.stdout.flush()
    except KeyboardInterrupt:
        report.exit_code = INTERRUPTED
        report.note("rocketmq-store: interrupted")
    except BrokenPipeError:  # the reader of the pipe is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (WrongUseError, SourceError, StoreError, OSError) as err:
        report.error(err)
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at the first Ctrl-C only: cleaning up must not be interrupted."""
    with _on_interrupt(_raise_once):
        yield


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into an event, for commands that normally end by a signal."""
    asked = threading.Event()

    def ask(_number: int, _frame: Any) -> None:
        asked.set()

    with _on_interrupt(ask), _on_interrupt(ask, signal.SIGTERM):
        yield asked


@contextmanager
def cancelling(spark: Any, tell: Callable[[str], None]) -> Iterator[None]:
    """Let Ctrl-C cancel the jobs of a session, so that Spark itself removes their output.

    Work on the driver alone, such as a commit, is short and is awaited. A second Ctrl-C does not
    wait.

    Raises
    ------
    KeyboardInterrupt
        A job was cancelled.
    """
    asked, over = threading.Event(), threading.Event()

    def cancel() -> None:
        # Repeatedly: after one job, or during planning, the next may begin.
        while not over.is_set():
            spark.sparkContext.cancelAllJobs()
            over.wait(_AGAIN_SECONDS)

    def on_signal(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGINT, _raise_once)
        asked.set()
        tell("interrupted: stopping Spark")
        threading.Thread(target=cancel, name="cancel-jobs", daemon=True).start()

    # Spark takes a while to load; py4j has no types.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        with _on_interrupt(on_signal):
            yield
    except (PySparkException, Py4JError) as err:
        if asked.is_set():
            raise KeyboardInterrupt from err
        raise
    finally:
        over.set()


def _raise_once(_number: int, _frame: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def _on_interrupt(
    handler: Callable[[int, Any], None], number: signal.Signals = signal.SIGINT
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # Python delivers signals to the main thread only
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
