# SPDX-License-Identifier: Apache-2.0
"""Times and limits on the command line: parsing of texts such as ``1h`` (ago) and ``500g``."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Annotated, Callable, NamedTuple, Optional

import typer

from rmqsource.cli.read import WrongUseError
from rmqsource.errors import SourceOptionError
from rmqsource.exit_codes import FOUND
from rmqsource.options.option_values import parse_bytes, parse_int, parse_time_ms

if TYPE_CHECKING:
    from rmqsource.cli.report import Report

_SPAN = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,3})?(?:ms|[smhdw])\s*)+")
_PART = re.compile(r"([0-9.]+)(ms|[smhdw])")
_UNIT_MS = {
    **{"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000},
    **{"d": 86_400_000, "w": 604_800_000},
}
_OFFSET = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_MINUTES = 18 * 60
_FLAG = "--fail-above"
FailAbove = Annotated[
    Optional[str],
    typer.Option(_FLAG, metavar="N", help="Exit with code 1 if there are more than N."),
]
CountOrSpan = Annotated[
    Optional[str],
    typer.Option(
        _FLAG,
        metavar="N|TIME",
        help="Exit with code 1 above this many messages, or above this time (5m).",
    ),
]
FailAboveBytes = Annotated[
    Optional[str],
    typer.Option(
        _FLAG, metavar="BYTES", help="Exit with code 1 if the files are larger in total (500g)."
    ),
]


def span_ms(text: str) -> int | None:
    """Return a span such as ``90s``, ``5m`` or ``1h30m`` in ms; None for any other text."""
    if not _SPAN.fullmatch(text.strip()):
        return None
    return round(sum(float(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text)))


def now_ms() -> int:
    """Return the current time in ms since the epoch."""
    return time.time_ns() // 1_000_000


class Clock(NamedTuple):
    """The current time in ms, and the zone of times without an offset (None if not given)."""

    now: int
    zone: tzinfo | None = None

    def instant_ms(self, flag: str, text: str) -> int:
        """Return a time in ms: ``now``, a span before it, ISO 8601, or ms since the epoch.

        Raises
        ------
        WrongUseError
            The text has another form, or it has no offset and ``--tz`` is not given.
        """
        ago = span_ms(text)
        if ago is not None or text.strip().lower() == "now":
            return self.now - (ago or 0)
        try:
            return parse_time_ms(flag, text, self.zone)
        except SourceOptionError as err:
            hint = "a time before now such as 1h, 30m or 2d"
            if "no offset" in err.reason:
                hint = "give its zone with --tz"
            raise WrongUseError(f"{flag}: {err.reason}; or {hint}") from err

    def window(self, since: str | None, until: str | None) -> tuple[str | None, str | None]:
        """Return a half-open span of time in the form of the source's options.

        Raises
        ------
        WrongUseError
            A text is not a time, or the span ends before it begins.
        """
        ends = [
            None if text is None else self.instant_ms(flag, _given(flag, text))
            for flag, text in (("--since", since), ("--until", until))
        ]
        begin, end = ends
        if begin is not None and end is not None and begin > end:
            raise WrongUseError(
                f"--since {since} is {(begin - end) / 1000:,g} s after --until {until}, which "
                "is exclusive; are the two swapped?"
            )
        return _text(begin), _text(end)


def _given(flag: str, text: str) -> str:
    if not text.strip():
        raise WrongUseError(f"{flag}: is empty; give a value or omit it")
    return text


def _text(milliseconds: int | None) -> str | None:
    """Return ms as ISO 8601, never read as seconds; as a number if no date can represent them."""
    if milliseconds is None:
        return None
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds")


def clock_of(name: str | None) -> Clock:
    """Return a clock with the current time and the zone of ``--tz``.

    Raises
    ------
    WrongUseError
        The zone does not exist.
    """
    return Clock(now_ms(), None if name is None else _zone(name.strip()))


def _zone(name: str) -> tzinfo:
    if name.lower() == "local":
        return _local_zone()
    if name.upper() in {"UTC", "Z"}:
        return timezone.utc
    offset = _OFFSET.fullmatch(name)
    if offset:
        minutes = int(offset[2]) * 60 + int(offset[3])
        if minutes <= _MOST_MINUTES:
            return timezone((1 if offset[1] == "+" else -1) * timedelta(minutes=minutes))
    else:
        from zoneinfo import ZoneInfo  # noqa: PLC0415 (few need it)

        try:
            return ZoneInfo(name)
        except (OSError, ValueError, LookupError):  # LookupError: not found, or no tzdata at all
            pass
    raise WrongUseError(
        "--tz: expected a zone such as Asia/Shanghai, an offset such as +08:00, local or "
        f"UTC; found {name!r}"
    )


def _local_zone() -> tzinfo:
    """Return the zone of this machine."""
    return _Local()


class _Local(tzinfo):
    """The machine's zone: Python knows its offset at each instant, but has no object for it."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, moment: datetime) -> datetime:
        local = moment.replace(tzinfo=timezone.utc).astimezone()
        return local.replace(tzinfo=self)


class Threshold(NamedTuple):
    """A limit, whose ``unit`` is ``count``, ``ms`` or ``bytes``."""

    text: str
    unit: str
    most: int

    def judge(self, value: int, what: str, report: Report) -> None:
        """Report an alert and set the exit code if a value is above the limit."""
        if value > self.most:
            report.end_with(FOUND)
            report.note(f"alert: {what}, above {self.text}")


def count(text: str | None) -> Threshold | None:
    """Return a limit for a count; None if ``text`` is."""
    return _parsed(text, "count", lambda given: parse_int(_FLAG, given))


def count_or_span(text: str | None) -> Threshold | None:
    """Return a limit for a number of messages, or for a time."""
    span = None if text is None else span_ms(text)
    if text is None or span is None:
        return _parsed(
            text, "count", lambda given: parse_int(_FLAG, given), " or a time such as 5m"
        )
    return Threshold(text, "ms", span)


def size(text: str | None) -> Threshold | None:
    """Return a limit for a number of bytes."""
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
