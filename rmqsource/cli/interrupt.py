"""What Ctrl-C does to a command: it ends, and what it was making is not there."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_AGAIN_SECONDS = 0.2


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise `KeyboardInterrupt` at the first Ctrl-C only: nobody is to interrupt the tidying up."""
    with _on_interrupt(_raise_once):
        yield


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into an event, for a command that they end as it is meant to end."""
    asked = threading.Event()

    def ask(_number: int, _frame: Any) -> None:
        asked.set()

    with _on_interrupt(ask), _on_interrupt(ask, signal.SIGTERM):
        yield asked


@contextmanager
def cancelling(spark: Any, tell: Callable[[str], None]) -> Iterator[None]:
    """Let Ctrl-C cancel the jobs of a session, so that Spark itself takes back what they wrote.

    What runs on the driver alone, such as a commit, is awaited: it is short. A second Ctrl-C does
    not wait.

    Parameters
    ----------
    spark
        A session of this command alone.
    tell
        Says to the person who watches that the command is ending.

    Raises
    ------
    KeyboardInterrupt
        A job was cancelled.
    """
    asked, over = threading.Event(), threading.Event()

    def cancel() -> None:
        # Again and again: after one job, or while a plan is made, the next may begin.
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
        yield  # Python gives signals to the main thread only
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
