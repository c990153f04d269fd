"""How ``rocketmq-store serve`` tells what it does: JSON lines, or a line of rates."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.cli.follow_state import Rate, StateLines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqnet.served_store import ServedState

    Tell = Callable[[ServedState], None]
else:
    Tell = Callable

_MB = 1e6


@contextmanager
def telling(where: Mapping[str, Any], *, as_json: bool) -> Iterator[Tell]:
    """Give what tells of a state, as often as it likes.

    Parameters
    ----------
    as_json
        A line a second on standard output; else one line on standard error that changes, only for
        a person who watches.
    """
    if as_json:
        lines: StateLines[ServedState] = StateLines(where, lambda state: state._asdict())
        yield lines.tell
        lines.end()
    elif sys.stderr.isatty():
        line = _Line()
        try:
            yield line.tell
        finally:
            line.stop()
    else:
        yield lambda _: None


class _Line:
    """Rates, and who is there."""

    def __init__(self) -> None:
        from rich import progress  # noqa: PLC0415 (for a person only)
        from rich.console import Console  # noqa: PLC0415

        columns = (progress.TextColumn("{task.description}"),)
        self._shown = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._shown.add_task("", total=None)
        self._rates = Rates()
        self._shown.start()

    def tell(self, state: ServedState) -> None:
        self._shown.update(self._task, description=self._rates.text(state))

    def stop(self) -> None:
        self._shown.stop()


class Rates:
    """What comes and leaves a second, as a person reads it."""

    def __init__(self) -> None:
        self._messages_in, self._bytes_in = Rate(), Rate()
        self._messages_out, self._bytes_out = Rate(), Rate()

    def text(self, state: ServedState) -> str:
        """Take in a state; return its line."""
        came = self._messages_in.of(state.messages_in), self._bytes_in.of(state.bytes_in)
        left = self._messages_out.of(state.messages_out), self._bytes_out.of(state.bytes_out)
        return (
            f"in {_flow(*came)}, out {_flow(*left)}, {state.connections:,} connections, "
            f"{state.held_pulls:,} pulls wait"
        )


def _flow(messages: float, size_bytes: float) -> str:
    return f"{messages:,.0f} msg/s {size_bytes / _MB:.1f} MB/s"
