"""Rows on the terminal or in a pipe: a table for people, JSON lines or CSV for programs."""

from __future__ import annotations

import base64
import csv
import json
import sys
from abc import ABC, abstractmethod
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmqsource.safe_text import json_text, printable, spreadsheet_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = Mapping[str, Any]

_BODY_CHARACTERS = 120
_BODY_BYTES = 40
_ROWS_OF_A_TABLE = 500
"""A longer answer comes as several tables, so that it streams."""
_PIPE_WIDTH = 10_000


class Format(str, Enum):
    """How rows are written."""

    table = "table"
    json = "json"
    csv = "csv"
    spreadsheet = "spreadsheet"
    """CSV in which no cell is a formula and every character is printable."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command, which ends quietly; rich would end with code 1."""
        raise BrokenPipeError


def stdout_console() -> Console:
    """Return a console on standard output, wide enough for whole rows when that is a pipe."""
    is_terminal = sys.stdout.isatty()
    return _Console(highlight=False, soft_wrap=False, width=None if is_terminal else _PIPE_WIDTH)


class RowWriter(ABC):
    """Takes rows as they come; ``close`` writes what is left."""

    @abstractmethod
    def write(self, row: Row) -> None:
        """Write a row, now or later."""

    def close(self) -> None:
        """Write what was held back."""
        sys.stdout.flush()


def row_writer(output: Format, columns: Sequence[str]) -> RowWriter:
    """Return the writer of a format; ``columns`` are those of a row, in order."""
    if output is Format.table:
        return _TableWriter(columns)
    return _JsonWriter() if output is Format.json else _CsvWriter(columns, output)


class _TableWriter(RowWriter):
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._rows: list[Row] = []
        self._console = stdout_console()

    def write(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) == _ROWS_OF_A_TABLE:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        super().close()

    def _flush(self) -> None:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in self._columns:
            numbers = any(isinstance(row[name], int) for row in self._rows)
            justify: Any = "right" if numbers else "left"
            table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
        for row in self._rows:
            table.add_row(*(Text(shown(row[name])) for name in self._columns))
        self._console.print(table)
        self._rows = []


class _JsonWriter(RowWriter):
    def write(self, row: Row) -> None:
        print(json_text(_exact(row)))


class _CsvWriter(RowWriter):
    def __init__(self, columns: Sequence[str], output: Format) -> None:
        self._text: Callable[[str], str] = str
        quoting: Any = csv.QUOTE_MINIMAL
        if output is Format.spreadsheet:
            # Some take a semicolon for the end of a cell.
            self._text, quoting = spreadsheet_text, csv.QUOTE_NONNUMERIC
        elif sys.stdout.isatty():
            self._text = printable
        self._writer = csv.writer(sys.stdout, lineterminator="\n", quoting=quoting)
        self._header = list(_exact(dict.fromkeys(columns)))

    def write(self, row: Row) -> None:
        values = _exact(row)
        if self._header:
            self._writer.writerow(values)
            self._header = []
        self._writer.writerow(self._cell(value) for value in values.values())

    def _cell(self, value: Any) -> Any:
        if isinstance(value, (list, dict)):
            value = json.dumps(value, ensure_ascii=False)
        return self._text(value) if isinstance(value, str) else value

    def close(self) -> None:
        if self._header:
            self._writer.writerow(self._header)
        super().close()


def write_result(row: Row, output: Format) -> None:
    """Write the one row that a command answers with."""
    if output is Format.table:
        write_record(row)
        return
    writer = row_writer(output, tuple(row))
    writer.write(row)
    writer.close()


def write_record(row: Row) -> None:
    """Write one row with a line per column, for a person."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in row.items():
        if name == "properties":
            for key, text in value:
                table.add_row(Text(f"  {printable(key)}"), Text(printable(text)))
        else:
            table.add_row(Text(name, "bold"), Text(shown(value, whole=True)))
    console = stdout_console()
    console.print(table)
    console.print()
    sys.stdout.flush()


def shown(value: Any, *, whole: bool = False) -> str:
    """Return a value as a person wants to see it; nothing in it can steer the terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        moment = value.astimezone(timezone.utc).replace(tzinfo=None)
        return moment.isoformat(" ", "milliseconds")
    if isinstance(value, bytes):
        return _shown_body(value, whole=whole)
    if isinstance(value, list):
        return " ".join(printable(str(item)) for item in value)
    return printable(str(value))


def _shown_body(body: bytes, *, whole: bool) -> str:
    text = _text_of(body)
    if text is not None:
        cut = not whole and len(text) > _BODY_CHARACTERS
        return printable(text[:_BODY_CHARACTERS]) + "…" if cut else printable(text)
    cut = not whole and len(body) > _BODY_BYTES
    return "0x" + (body[:_BODY_BYTES].hex() + "…" if cut else body.hex())


def _text_of(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _exact(row: Row) -> dict[str, Any]:
    """Return a row as JSON has it: times in ISO 8601, bodies in Base64 and, if UTF-8, as text."""
    exact: dict[str, Any] = {}
    for name, value in row.items():
        exact[name] = value
        if isinstance(value, datetime):
            text = value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
            exact[name] = text.replace("+00:00", "Z")
        elif name == "properties" and value is not None:
            exact[name] = dict(value)
        elif name == "body":
            exact[name] = None if value is None else base64.b64encode(value).decode()
            exact["body_text"] = None if value is None else _text_of(value)
    return exact
