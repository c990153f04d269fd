# SPDX-License-Identifier: Apache-2.0
"""Progress of ``rocketmq-store follow``: JSON lines, or notes and a bar."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

from rmqsource.cli.output import Display, Format, row_writer
from rmqsource.cli.report import Report, changing_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store_core.ha.follow_state import FollowState

    TellFollowed = Callable[[FollowState], None]
else:
    TellFollowed = Callable

_RATE_SECONDS = 1.0
_SECOND_MS = 1000
_MB = 1e6
_BAR_CELLS = 8
State = TypeVar("State")
_TELL_SECONDS = 1.0


@contextmanager
def follow_reports(
    path: str, master: str, said: Report, *, as_json: bool
) -> Iterator[TellFollowed]:
    """Yield a function that reports a state; it may be called often.

    JSON lines go to standard output, one a second; notes and the bar to standard error, the bar
    only if that is a terminal.
    """
    if as_json:
        lines = StateLines({"store": path, "master": master}, state_row)
        yield lines.tell
        lines.end()
        return
    notes = _Notes(master, said)
    if not sys.stderr.isatty():
        yield notes.tell
        return
    with changing_line(_BAR_CELLS) as change:
        bar = _Bar(change)

        def tell(state: FollowState) -> None:
            notes.tell(state)
            bar.tell(state)

        yield tell


def state_row(state: FollowState) -> dict[str, Any]:
    """Return a state by name, in the form of its JSON."""
    values = asdict(state).items()
    return {name: value.value if isinstance(value, Enum) else value for name, value in values}


class _Notes:
    """Reports when the copy has everything; the client itself reports a lost connection."""

    def __init__(self, master: str, said: Report) -> None:
        self._master, self._said = master, said
        self._told_at = -1

    def tell(self, state: FollowState) -> None:
        if state.is_caught_up and state.reconnects != self._told_at:
            self._told_at = state.reconnects
            self._said.note(
                f"the copy has everything that {self._master} has, up to offset {state.max_offset}"
            )


class _Bar:
    """A short bar from the copy's initial end to the master's end, with numbers."""

    def __init__(self, change: Callable[..., None]) -> None:
        self._change, self._rate = change, Rate()
        self._begin: int | None = None

    def tell(self, state: FollowState) -> None:
        if self._begin is None:
            self._begin = state.max_offset
        speed = self._rate.take(state.bytes_received) / _MB
        self._change(
            completed=state.max_offset - self._begin,
            total=max(state.master_offset or 0, state.max_offset) - self._begin,
            description=f"offset {state.max_offset:,}, {speed:.1f} MB/s, {lag_text(state)}",
        )


class Rate:
    """Growth of a count per second, measured over about the last second."""

    def __init__(self) -> None:
        self._time, self._count, self._rate = time.monotonic(), 0, 0.0

    def take(self, count: int) -> float:
        """Record the current count; return the rate."""
        passed = time.monotonic() - self._time
        if passed >= _RATE_SECONDS:
            self._rate = (count - self._count) / passed
            self._time, self._count = self._time + passed, count
        return self._rate


def lag_text(state: FollowState) -> str:
    """Return the lag of a copy as text."""
    if state.is_caught_up:
        return "up to date"
    if state.lag_bytes is None:
        return "lag not known"
    seconds = "" if state.lag_ms is None else f", {state.lag_ms / _SECOND_MS:.1f} s"
    return f"{state.lag_bytes:,} bytes{seconds} behind"


class StateLines(Generic[State]):
    """Writes at most one line a second, and the last state at the end."""

    def __init__(
        self, where: Mapping[str, Any], row_of: Callable[[State], Mapping[str, Any]]
    ) -> None:
        self._where, self._row_of = where, row_of
        self._writer = row_writer(Display(Format.json), ())
        self._next = 0.0
        self._last: State | None = None

    def tell(self, state: State) -> None:
        """Write a state, unless another was written within the last second."""
        self._last = state
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _TELL_SECONDS
            self._write(state)

    def end(self) -> None:
        """Write the last state, unless it has been written."""
        if self._last is not None:
            self._write(self._last)

    def _write(self, state: State) -> None:
        self._last = None
        now = datetime.now(timezone.utc)
        self._writer.write({"time": now, **self._where, **self._row_of(state)})
        self._writer.flush()
