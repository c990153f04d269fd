"""``--fail-above``: a limit above which a command ends with an alert."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Callable, NamedTuple, Optional

import typer

from rmqsource.cli.read import WrongUseError
from rmqsource.cli.times import span_ms
from rmqsource.errors import SourceOptionError
from rmqsource.exit_codes import FOUND
from rmqsource.options.option_values import parse_bytes, parse_int

if TYPE_CHECKING:
    from rmqsource.cli.report import Report

_FLAG = "--fail-above"

Count = Annotated[
    Optional[str],
    typer.Option(_FLAG, metavar="N", help="Exit code 1 if there are more."),
]
CountOrSpan = Annotated[
    Optional[str],
    typer.Option(
        _FLAG, metavar="N|TIME", help="Exit code 1 if more messages, or older ones (5m), wait."
    ),
]
Bytes = Annotated[
    Optional[str],
    typer.Option(_FLAG, metavar="BYTES", help="Exit code 1 if the files have more: 500g."),
]


class Threshold(NamedTuple):
    """A limit: of ``unit`` ``count``, ``ms`` or ``bytes``."""

    text: str
    unit: str
    most: int

    def judge(self, value: int, what: str, report: Report) -> None:
        """Let a command end with an alert if a value is above the limit."""
        if value > self.most:
            report.end_with(FOUND)
            report.note(f"alert: {what}, above {self.text}")


def count(text: str | None) -> Threshold | None:
    """Return a limit of a number of things."""
    return _parsed(text, "count", lambda given: parse_int(_FLAG, given))


def count_or_span(text: str | None) -> Threshold | None:
    """Return a limit of a number of messages, or of a time."""
    span = None if text is None else span_ms(text)
    if text is None or span is None:
        return _parsed(text, "count", lambda given: parse_int(_FLAG, given), " or a time as 5m")
    return Threshold(text, "ms", span)


def size(text: str | None) -> Threshold | None:
    """Return a limit of a number of bytes."""
    return _parsed(text, "bytes", lambda given: parse_bytes(_FLAG, given))


def _parsed(
    text: str | None, unit: str, parse: Callable[[str], int], other: str = ""
) -> Threshold | None:
    if text is None:
        return None
    try:
        return Threshold(text, unit, parse(text))
    except SourceOptionError as err:
        found = err.reason.replace("; found", f"{other}; found")
        raise WrongUseError(f"{_FLAG}: {found}") from err
