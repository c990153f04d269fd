# SPDX-License-Identifier: Apache-2.0
"""Parse conditions written in SQL, as accepted by option ``where`` and `rmqsource.explain`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.errors import SourceOptionError
from rmqsource.options.option_values import parse_instant_ns

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT_COLUMNS = ("topic", "unique_key", "message_id", "tags", "key")
NUMBER_COLUMNS = ("queue_id", "queue_offset", "commit_log_offset")
TIME_COLUMN = "store_timestamp"
OPERATORS = ("=", "<", "<=", ">", ">=")
IN = "in"

_ALLOWED = (
    "allowed are comparisons joined by AND: topic, unique_key, message_id, tags and (table "
    "keys) key with = 'text' or IN ('a', 'b'); queue_id, queue_offset and commit_log_offset "
    "with = < <= > >= and an integer, or IN (1, 2); store_timestamp with = < <= > >= and a "
    "time with its offset such as '2026-01-31T09:00:00Z', or IN with such times; a quote in "
    "a text is written ''"
)
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\]|'')*')
      | (?P<number>[+-]?[0-9]+)(?![\w.])
      | (?P<word>[A-Za-z_]\w*|`[^`]+`)
      | (?P<sign><=|>=|[=<>(),])
    )""",
    re.VERBOSE,
)
_MAX_DIGITS = 38  # as many as Spark's longest decimal has
_SHOWN = 40
_AROUND = 100
# Microseconds, as Spark has them: it would cut off further digits, so they are refused, as is a
# date without a time of day.
_TIME = re.compile(r".{10}[Tt ][0-9]{2}:[^.,]*(?:[.,][0-9]{1,6}(?![0-9]).*)?", re.DOTALL)


class Comparison(NamedTuple):
    """A column compared with one value, or with several by ``in``.

    Values are texts or integers; for ``store_timestamp``, nanoseconds since the epoch. None is
    SQL's null, which nothing equals.
    """

    column: str
    """In lower case."""
    operator: str
    """One of `OPERATORS`, or ``in``."""
    values: tuple[Any, ...]
    at: str = ""
    """Its place in the text, for errors."""


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


_END = _Token("end", "", -1)


def parse_where(option: str, text: str) -> tuple[Comparison, ...]:
    """Return the comparisons of a conjunction.

    Parameters
    ----------
    text
        For example ``topic = 'orders' AND store_timestamp >= '2026-01-31T09:00:00+08:00'``. The
        word ``TIMESTAMP`` before a time is accepted. Backslashes are refused, because Spark reads
        them as escapes.

    Raises
    ------
    SourceOptionError
        The text is not such a conjunction, or a value does not have the column's type.
    """
    return tuple(_Parser(option, text).comparisons())


def column_error(option: str, comparison: Comparison, reason: str) -> SourceOptionError:
    """Return the error of a comparison that is well-formed but does not apply."""
    return SourceOptionError(option, f"{reason}, {comparison.at}; {_ALLOWED}")


class _Parser:
    """Reads tokens from left to right; there is no nesting."""

    def __init__(self, option: str, text: str) -> None:
        self._option = option
        self._text = text
        self._tokens = list(self._tokenized())
        self._next_token = 0

    def comparisons(self) -> Iterator[Comparison]:
        while True:
            yield self._comparison()
            token = self._next()
            if token is _END:
                return
            if token.kind != "word" or token.text.upper() != "AND":
                raise self._unexpected("AND or the end", token)

    def _tokenized(self) -> Iterator[_Token]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                start = len(self._text) - len(self._text[at:].lstrip())
                raise self._error(f"cannot read {self._text[start:][:_SHOWN]!r}", start)
            kind = match.lastgroup
            yield _Token(kind, match[kind], match.start(kind))
            at = match.end()

    def _comparison(self) -> Comparison:
        token = self._next()
        column = token.text.strip("`").lower()
        if token.kind != "word" or column not in (*TEXT_COLUMNS, *NUMBER_COLUMNS, TIME_COLUMN):
            raise self._unexpected("a column that can be compared", token)
        at = self._place(token.start)
        sign = self._next()
        if sign.kind == "word" and sign.text.upper() == "IN":
            return Comparison(column, IN, tuple(self._list(column)), at)
        if sign.kind != "sign" or sign.text not in OPERATORS:
            raise self._unexpected(f"an operator after {column}", sign)
        if column in TEXT_COLUMNS and sign.text != "=":
            raise self._error(f"{column} cannot be compared with {sign.text}", sign.start)
        return Comparison(column, sign.text, (self._value(column),), at)

    def _list(self, column: str) -> Iterator[Any]:
        opening = self._next()
        if opening.text != "(":
            raise self._unexpected("( after IN", opening)
        while True:
            yield self._value(column)
            token = self._next()
            if token.kind != "sign" or token.text not in {",", ")"}:
                raise self._unexpected(", or )", token)
            if token.text == ")":
                return

    def _value(self, column: str) -> Any:
        token = self._next()
        if column in NUMBER_COLUMNS:
            if token.kind != "number" or len(token.text.lstrip("+-")) > _MAX_DIGITS:
                raise self._unexpected(f"an integer to compare {column} with", token)
            return int(token.text)
        if column == TIME_COLUMN and token.kind == "word" and token.text.upper() == "TIMESTAMP":
            token = self._next()
        if token.kind != "text":
            kind = "a time" if column == TIME_COLUMN else "a text"
            raise self._unexpected(f"{kind} in single quotes to compare {column} with", token)
        text = token.text[1:-1].replace("''", "'")
        return self._instant(text, token.start) if column == TIME_COLUMN else text

    def _instant(self, text: str, start: int) -> int:
        if not _TIME.fullmatch(text.strip()):
            expected = "a time of at most microsecond precision such as '2026-01-31T09:00:00.000Z'"
            raise self._error(f"expected {expected}; found {text!r}", start)
        try:
            return parse_instant_ns(self._option, text)
        except SourceOptionError as err:
            raise self._error(err.reason, start) from err

    def _next(self) -> _Token:
        self._next_token += 1
        known = self._next_token <= len(self._tokens)
        return self._tokens[self._next_token - 1] if known else _END

    def _unexpected(self, expected: str, token: _Token) -> SourceOptionError:
        if token is _END:
            return self._error(
                f"expected {expected}; the text ends too early", len(self._text.rstrip())
            )
        return self._error(f"expected {expected}; found {token.text[:_SHOWN]!r}", token.start)

    def _error(self, reason: str, start: int) -> SourceOptionError:
        return SourceOptionError(self._option, f"{reason}, {self._place(start)}; {_ALLOWED}")

    def _place(self, start: int) -> str:
        begin = max(start - _AROUND, 0)
        shown = self._text[begin : start + _AROUND]
        shown = "..." * (begin > 0) + shown + "..." * (start + _AROUND < len(self._text))
        return f"at column {start + 1} of {shown!r}"
