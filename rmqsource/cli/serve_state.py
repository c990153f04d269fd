"""How ``rocketmq-store serve`` tells what it does: JSON lines, or a line of rates."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.cli.follow_state import Rate, StateLines
from rmqsource.cli.report import changing_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqnet.served_store import ServedState

    TellServed = Callable[[ServedState], None]
else:
    TellServed = Callable

_MB = 1e6


@contextmanager
def served_reports(where: Mapping[str, Any], *, as_json: bool) -> Iterator[TellServed]:
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
        rates = Rates()
        with changing_line() as change:
            yield lambda state: change(description=rates.text(state))
    else:
        yield lambda _: None


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
