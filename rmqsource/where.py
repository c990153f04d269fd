"""A condition written in SQL as the filters that Spark would push into the source."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.errors import SourceOptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTION = "where"
_TEXT_COLUMNS = ("topic", "unique_key", "message_id", "tags", "key")
_NUMBER_COLUMNS = ("queue_id", "queue_offset", "commit_log_offset")
_TIME_COLUMN = "store_timestamp"
_ALLOWED = (
    "allowed are comparisons joined by AND: topic, unique_key, message_id, tags and (table keys) "
    "key with = 'text' or IN ('a', 'b'); queue_id, queue_offset and commit_log_offset with "
    "= < <= > >= and integers, or IN (1, 2); store_timestamp with = < <= > >= and "
    "TIMESTAMP '2026-01-31 09:00:00Z'"
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
_COMPARISONS = {
    "=": "EqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}


class _Token(NamedTuple):
    kind: str
    text: str


class _Condition(NamedTuple):
    column: str
    operator: str
    values: tuple[Any, ...]


def parse_where(text: str, table: str = "messages") -> list[Any]:
    """Return a conjunction as filters of ``pyspark.sql.datasource`` (Spark 4.1 or newer).

    Parameters
    ----------
    text
        As ``topic = 'orders' AND store_timestamp >= TIMESTAMP '2026-01-31 09:00:00+08:00'``.
        Times without an offset are UTC. A quote in a text is written twice; backslashes are not
        allowed, because Spark would read them as escapes.
    table
        ``messages`` or ``keys``.

    Raises
    ------
    SourceOptionError
        The text is no such conjunction, a literal is not of the column's type, or this Spark is
        too old.
    """
    if table not in {"messages", "keys"}:
        raise SourceOptionError(_OPTION, f"applies to tables messages and keys, not to {table!r}")
    return [_as_filter(condition) for condition in _Parser(text, table).conditions()]


def _as_filter(condition: _Condition) -> Any:
    from pyspark.sql import datasource  # noqa: PLC0415 (pyspark on demand)

    name = "In" if condition.operator == "in" else _COMPARISONS[condition.operator]
    filter_class = getattr(datasource, name, None)
    if filter_class is None:
        raise SourceOptionError(
            _OPTION, "needs Spark 4.1 or newer; say the same with options, as topic or keys"
        )
    value = condition.values if name == "In" else condition.values[0]
    return filter_class((condition.column,), value)


class _Parser:
    """Reads tokens from left to right; there is no nesting."""

    def __init__(self, text: str, table: str) -> None:
        self._text = text
        self._table = table
        self._tokens = list(self._tokenized())
        self._at = 0

    def conditions(self) -> Iterator[_Condition]:
        while True:
            yield self._condition()
            if self._at == len(self._tokens):
                return
            self._expect_word("AND")

    def _tokenized(self) -> Iterator[_Token]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            match = _TOKEN.match(self._text, at)
            if match is None or match.lastgroup is None:
                raise self._error(f"cannot read {self._text[at:].strip()[:40]!r}")
            yield _Token(match.lastgroup, match[match.lastgroup])
            at = match.end()

    def _condition(self) -> _Condition:
        column = self._column()
        operator = self._next()
        if operator.kind == "word" and operator.text.upper() == "IN":
            return _Condition(column, "in", tuple(self._list(column)))
        if operator.kind != "sign" or operator.text not in _COMPARISONS:
            raise self._error(f"expected an operator behind {column}; found {operator.text!r}")
        if column in _TEXT_COLUMNS and operator.text != "=":
            raise self._error(f"{column} cannot be compared with {operator.text}")
        return _Condition(column, operator.text, (self._literal(column),))

    def _column(self) -> str:
        token = self._next()
        name = token.text.strip("`").lower()
        if token.kind != "word" or name not in (*_TEXT_COLUMNS, *_NUMBER_COLUMNS, _TIME_COLUMN):
            raise self._error(f"{token.text!r} is not a column that the source filters by")
        if name == "key" and self._table != "keys":
            raise self._error("column key exists in table keys; give option table=keys")
        return name

    def _list(self, column: str) -> Iterator[Any]:
        self._expect_sign("(")
        while True:
            yield self._literal(column)
            if self._expect_sign(",", ")") == ")":
                return

    def _literal(self, column: str) -> Any:
        token = self._next()
        if column in _NUMBER_COLUMNS:
            if token.kind != "number":
                raise self._error(f"{column} is compared with an integer; found {token.text!r}")
            return int(token.text)
        if column == _TIME_COLUMN:
            if token.kind != "word" or token.text.upper() != "TIMESTAMP":
                raise self._error(f"{column} is compared with TIMESTAMP '...'; found {token.text}")
            token = self._next()
        if token.kind != "text":
            raise self._error(f"expected a text in single quotes; found {token.text!r}")
        text = token.text[1:-1].replace("''", "'")
        return self._instant(text) if column == _TIME_COLUMN else text

    def _instant(self, text: str) -> datetime:
        # Before 3.11 Python reads neither a Z nor fractions of other lengths than 3 and 6.
        iso = re.sub(r"\s*[Zz]$", "+00:00", text.strip())
        iso = re.sub(r"\.([0-9]{1,6})", lambda m: "." + m[1].ljust(6, "0"), iso)
        try:
            if re.search(r"[Tt ]24", iso):  # Python takes it from 3.14 on, Spark does not
                raise ValueError(iso)
            moment = datetime.fromisoformat(iso)
        except ValueError as err:
            raise self._error(f"{text!r} is not a time") from err
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)

    def _next(self) -> _Token:
        if self._at == len(self._tokens):
            raise self._error("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect_sign(self, *signs: str) -> str:
        token = self._next()
        if token.kind != "sign" or token.text not in signs:
            raise self._error(f"expected {' or '.join(signs)}; found {token.text!r}")
        return token.text

    def _expect_word(self, word: str) -> None:
        token = self._next()
        if token.kind != "word" or token.text.upper() != word:
            raise self._error(f"expected {word}; found {token.text!r}")

    def _error(self, reason: str) -> SourceOptionError:
        return SourceOptionError(_OPTION, f"{reason}, in {self._text!r}; {_ALLOWED}")
