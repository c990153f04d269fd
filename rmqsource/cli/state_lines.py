"""What goes on, as JSON lines for programs."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Callable, Generic, TypeVar

from rmqsource.cli.output import Display, Format, row_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

State = TypeVar("State")
_TELL_SECONDS = 1.0


class StateLines(Generic[State]):
    """Writes a line a second, and the last state at the end.

    Parameters
    ----------
    where
        What stands in each line, beside the time and the state.
    row_of
        Returns a state by name.
    """

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
        """Write the last state, if it was not."""
        if self._last is not None:
            self._write(self._last)

    def _write(self, state: State) -> None:
        self._last = None
        now = datetime.now(timezone.utc)
        self._writer.write({"time": now, **self._where, **self._row_of(state)})
        self._writer.flush()
