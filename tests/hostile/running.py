# SPDX-License-Identifier: Apache-2.0
"""Run the commands of a case within limits, and report failures."""

from __future__ import annotations

import gc
import os
import random
import re
import shutil
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from tests.hostile.cases import Case, WrongError, draw_case
from tests.hostile.commands import COMMANDS, Command
from tests.hostile.mutations import outside_of
from tests.hostile.spark_session import worker_processes
from tests.hostile.state import differences, state_of

COMMANDS_PER_STORE = 3
MOST_RSS_BYTES = 2 << 30
MOST_SECONDS = 60.0
PREPARING = "the preparation"
"""Step before each command: Spark may start in it, which does not count as the command's time."""
_MADE_BESIDE = {"store", "broker.conf", "outside", "sound", "report", "salvaged", "copied"}
_MADE_BESIDE |= {"salvaged.salvage.json", "exported"}


@dataclass
class Failure:
    """A failure: the command, the store, and what was wrong."""

    number: int
    command: str
    kind: str
    """One line that is the same for the same fault; failures are counted by it."""
    text: str
    mutations: list[str] = field(default_factory=list)


@dataclass
class Done:
    """A command that ended."""

    command: str
    end: str
    seconds: float
    peak_bytes: int


def commands_of(seed: int, number: int, per_store: int = COMMANDS_PER_STORE) -> list[str]:
    """Return the commands of a store: dealt like cards, so that each comes equally often."""
    deck: list[str] = []
    for card in range(number * per_store, (number + 1) * per_store):
        shuffled, at = divmod(card, len(COMMANDS))
        names = list(COMMANDS)
        random.Random(f"{seed}/deck/{shuffled}").shuffle(names)
        deck.append(names[at])
    return deck


def run_store(
    seed: int,
    number: int,
    place: Path,
    *,
    begin: Callable[[str], None] = lambda _: None,
    names: tuple[str, ...] = (),
) -> tuple[list[Done], list[Failure]]:
    """Make a store and run its commands; ``place`` is created and removed."""
    case = draw_case(seed, number, place, names)
    done: list[Done] = []
    failures: list[Failure] = []
    try:
        for name in commands_of(seed, number):
            begin(PREPARING)
            COMMANDS[name].prepare()
            begin(name)
            case.commands.append(name)
            result, failure = _run(case, number, name, COMMANDS[name])
            done.append(result)
            if failure is not None:
                failures.append(failure)
                break  # what it left does not count as a failure
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return done, failures


def _run(case: Case, number: int, name: str, command: Command) -> tuple[Done, Failure | None]:
    before = state_of(case.root) if command.reads else None
    outside = state_of(outside_of(case.root))
    descriptors, threads = _descriptors(case.place), threading.active_count()
    _reset_peak()
    begin, end, failure = time.perf_counter(), "failed", None
    try:
        with _nothing_unseen() as unseen:
            end = command.run(case)
        if unseen:
            raise WrongError(unseen[0])
    except BaseException as err:
        if isinstance(err, KeyboardInterrupt):
            raise
        failure = Failure(number, name, _kind_of(err), _told(err), case.done)
    seconds, peak = time.perf_counter() - begin, _peak()
    if failure is None:
        text = _changes(case, before, outside)
        text = text or _limits(seconds, peak)
        text = text or _left_open(case.place, descriptors, threads)
        if text:
            failure = Failure(number, name, text.split(":")[0], text, case.done)
    for path in ("sound", "salvaged", "copied", "exported"):
        shutil.rmtree(case.place / path, ignore_errors=True)
    (case.place / "salvaged.salvage.json").unlink(missing_ok=True)
    return Done(name, end, seconds, peak), failure


def _changes(case: Case, before: Any, outside: Any) -> str:
    if before is not None:
        changed = differences(before, state_of(case.root))
        if changed:
            return f"a reading command changed the store: {changed}"
    changed = differences(outside, state_of(outside_of(case.root)))
    if changed:
        return f"something outside the store changed: {changed}"
    beside = set(os.listdir(case.place)) - _MADE_BESIDE
    return f"left beside the store: {sorted(beside)}" if beside else ""


def _limits(seconds: float, peak: int) -> str:
    if peak > MOST_RSS_BYTES:
        return f"too much memory: {peak >> 20} MiB"
    return f"too long: {seconds:.0f} s" if seconds > MOST_SECONDS else ""


def _left_open(place: Path, descriptors: set[str], threads: int) -> str:
    if _descriptors(place) - descriptors:
        gc.collect()
    left = _descriptors(place) - descriptors
    if left:
        return f"descriptors left open: {sorted(left)[:3]}"
    deadline = time.monotonic() + 5
    while threading.active_count() > threads and time.monotonic() < deadline:
        time.sleep(0.01)  # a pool's threads end a moment after their work
    if threading.active_count() > threads:
        return f"threads left running: {[thread.name for thread in threading.enumerate()]}"
    return ""


def _descriptors(place: Path) -> set[str]:
    """Return the open files below a directory."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    return {path for path in found if path.startswith(f"{place}/")}


@contextmanager
def _nothing_unseen() -> Iterator[list[str]]:
    """Collect errors that go unseen: in threads, in finalizers, as warnings."""
    unseen: list[str] = []

    def in_thread(args: Any) -> None:
        text = "".join(
            traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
        )
        unseen.append(f"raised in a thread: {text[-1500:]}")

    def in_finalizer(args: Any) -> None:
        unseen.append(f"raised in a finalizer: {args.exc_value!r} in {args.object!r}")

    with (
        mock.patch.multiple(threading, excepthook=in_thread),
        mock.patch.object(sys, "unraisablehook", in_finalizer),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        yield unseen


def _kind_of(err: BaseException) -> str:
    """Return what an error is, and where in the project it was raised."""
    if isinstance(err, WrongError):
        return re.sub(r"[0-9]+|'[^']*/[^']*'", "N", str(err)).split("['")[0][:90]
    place = ""
    for frame in traceback.extract_tb(err.__traceback__):
        is_ours = "/rmqsource/" in frame.filename or "/store_core/" in frame.filename
        if is_ours and "/tests/" not in frame.filename:
            place = f"{frame.filename.split('/')[-1]}:{frame.name}"
    return f"{type(err).__name__} in {place}"


def _told(err: BaseException) -> str:
    if isinstance(err, WrongError):
        return str(err)
    return "".join(traceback.format_exception(type(err), err, err.__traceback__))[-3000:]


def _reset_peak() -> None:
    for process in ("self", *worker_processes()):
        with suppress(OSError):
            Path(f"/proc/{process}/clear_refs").write_text("5")


def _peak() -> int:
    """Return the peak memory of this process, or of one of Spark's, since `_reset_peak`."""
    return max(map(_peak_of, ("self", *worker_processes())))


def _peak_of(process: object) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) << 10 if lines else 0
