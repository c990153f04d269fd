# SPDX-License-Identifier: Apache-2.0
"""Rows on the terminal or in a pipe: a table for people, JSON lines or CSV for programs."""

from __future__ import annotations

import base64
import csv
import json
import os
import shutil
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from enum import Enum
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

from rmqsource.cli.read import WrongUseError
from rmqsource.options.option_values import did_you_mean
from rmqsource.safe_text import json_text, printable, spreadsheet_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    OutputRow = Mapping[str, Any]

_BODY_CHARACTERS = 120
_BODY_BYTES = 40
_ROWS_OF_A_TABLE = 500
"""Longer tables are written in parts, so that rows appear as they are read."""
_DEEPER = 2
_LEAST_VALUE = 16
"""Least width of a record's value next to its name."""
GAP = 2
_FREE, _LISTS, _NAMES = range(3)
_SOFT = {
    **dict.fromkeys(("body", "detail", "why", "reason", "missing_offsets"), (_FREE, 10)),
    **dict.fromkeys(("meaning", "advice", "examples", "index_files_dropped"), (_FREE, 10)),
    **dict.fromkeys(("keys", "passed_by", "properties"), (_LISTS, 6)),
    **dict.fromkeys(("tags", "born_host", "store_host"), (_LISTS, 5)),
    **dict.fromkeys(("path", "store", "place", "directory"), (_LISTS, 12)),
    **dict.fromkeys(("topic", "real_topic", "group", "producer_group", "sent_to"), (_NAMES, 9)),
}
"""Column that may be cut -> its rank (lowest is cut first), least width. All others stay whole."""
_CUT_IN_FRONT = {"path", "store", "directory"}
"""Columns whose end says more than their beginning."""


class Format(str, Enum):
    """How rows are written."""

    table = "table"
    json = "json"
    csv = "csv"
    spreadsheet = "spreadsheet"
    """CSV in which no cell is a formula and every character is printable."""


@dataclass(frozen=True)
class Display:
    """How rows are shown to a person or a program."""

    output: Format = Format.table
    columns: Sequence[str] = ()
    """Columns to show, in order; the usual ones if empty."""
    wide: bool = False
    """A table may be wider than the terminal."""
    zone: tzinfo = timezone.utc

    @property
    def is_table(self) -> bool:
        """Whether rows are for a person."""
        return self.output is Format.table


class Form(NamedTuple):
    """How a table shows a column: its heading, and its values as text."""

    heading: str
    text: Callable[[Any], str]


class Shape(NamedTuple):
    """The columns of a command's rows: those of its table, and all.

    ``drop`` are the columns that a narrow table leaves out first, in this order.
    """

    shown: tuple[str, ...]
    every: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    forms: Mapping[str, Form] = {}

    def chosen(self, display: Display) -> tuple[str, ...]:
        """Return the columns to write.

        Raises
        ------
        WrongUseError
            One of ``--columns`` does not exist.
        """
        every = self.every or self.shown
        if not display.columns:
            return self.shown if display.is_table else every
        by_heading = {form.heading: name for name, form in self.forms.items()}
        names = [by_heading.get(name, name) for name in display.columns]
        for name in names:
            if name not in every:
                hint = did_you_mean(name, every) or "."
                raise WrongUseError(
                    f"--columns: there is no column {name!r}{hint} Columns are {', '.join(every)}"
                )
        return tuple(dict.fromkeys(names))


def bold(text: str) -> str:
    """Return a text in bold if the output is a terminal that supports it, without ``NO_COLOR``."""
    dumb = os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR")
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() and not dumb else text


def table_width(display: Display) -> int | None:
    """Return how wide a table may be; None if any width will do (a pipe, or ``--wide``)."""
    if display.wide or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


class RowWriter(ABC):
    """Takes rows as they come; ``close`` writes the remaining ones."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns

    @abstractmethod
    def write(self, row: OutputRow) -> None:
        """Write a row, now or later; columns that are not shown are ignored."""

    def flush(self) -> None:
        """Write pending rows."""
        sys.stdout.flush()

    def close(self) -> None:
        """Write pending rows, and anything that belongs at the end."""
        self.flush()


def row_writer(display: Display, shape: Shape | tuple[str, ...]) -> RowWriter:
    """Return a writer for rows of a shape.

    Raises
    ------
    WrongUseError
        One of ``--columns`` does not exist.
    """
    wanted = shape if isinstance(shape, Shape) else Shape(tuple(shape))
    columns = wanted.chosen(display)
    if display.is_table:
        return _TableWriter(columns, wanted, display)
    if display.output is Format.json:
        return _JsonWriter(columns, display.zone)
    return _CsvWriter(columns, display)


class _TableWriter(RowWriter):
    def __init__(self, columns: tuple[str, ...], shape: Shape, display: Display) -> None:
        super().__init__(columns)
        self._shape, self._display = shape, display
        self._rows: list[OutputRow] = []
        self._layout: Layout | None = None
        self._dropped: dict[str, None] = {}

    def write(self, row: OutputRow) -> None:
        self._rows.append(row)
        if len(self._rows) == _ROWS_OF_A_TABLE:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            columns = [self._column(name) for name in self.columns]
            self._rows = []
            if self._layout is None or not self._layout.holds(columns):
                width = table_width(self._display)
                self._layout = fit_table(columns, width, self._shape.drop)
                self._dropped.update(dict.fromkeys(self._layout.dropped))
                *names, rule = table_heading(columns, self._layout)
                print(*map(bold, names), rule, sep="\n")
            print(*table_rows(columns, self._layout), sep="\n")
        super().flush()

    def close(self) -> None:
        super().close()
        if self._dropped:
            print(
                f"hidden to fit the terminal: {', '.join(self._dropped)} (choose with "
                "--columns NAMES, or use --wide for longer lines)",
                file=sys.stderr,
            )

    def _column(self, name: str) -> TableColumn:
        form = self._shape.forms.get(name)
        values = [row[name] for row in self._rows]
        numbers = any(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
        zone = self._display.zone
        if form is None:
            return TableColumn(name, name, tuple(shown(v, zone=zone) for v in values), numbers)
        cells = tuple("" if v is None else printable(form.text(v)) for v in values)
        return TableColumn(name, form.heading, cells, numbers)


class _JsonWriter(RowWriter):
    def __init__(self, columns: tuple[str, ...], zone: tzinfo) -> None:
        super().__init__(columns)
        self._zone = zone

    def write(self, row: OutputRow) -> None:
        chosen = {name: row[name] for name in self.columns} if self.columns else row
        print(json_text(_exact(chosen, self._zone)))


class _CsvWriter(RowWriter):
    def __init__(self, columns: tuple[str, ...], display: Display) -> None:
        super().__init__(columns)
        self._zone = display.zone
        self._text: Callable[[str], str] = str
        quoting: Any = csv.QUOTE_MINIMAL
        if display.output is Format.spreadsheet:
            # Some spreadsheets end a cell at a semicolon.
            self._text, quoting = spreadsheet_text, csv.QUOTE_NONNUMERIC
        elif sys.stdout.isatty():
            self._text = printable
        self._writer = csv.writer(sys.stdout, lineterminator="\n", quoting=quoting)
        self._header = list(_exact(dict.fromkeys(columns), self._zone))

    def write(self, row: OutputRow) -> None:
        values = _exact({name: row[name] for name in self.columns}, self._zone)
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


def write_result(row: OutputRow, display: Display) -> None:
    """Write the only row of a command's result."""
    if display.is_table:
        write_record(row, display)
        return
    writer = row_writer(display, tuple(row))
    writer.write(row)
    writer.close()


def write_record(row: OutputRow, display: Display) -> None:
    """Write one row with a line per column, for a person; long values are wrapped."""
    shown_names = Shape(tuple(row)).chosen(display)
    lines: list[tuple[str, str]] = []
    for name in shown_names:
        if name == "properties":
            lines += [(f"  {printable(key)}", printable(text)) for key, text in row[name]]
        else:
            lines.append((name, shown(row[name], whole=True, zone=display.zone)))
    indent = max((len(name) for name, _ in lines), default=0) + 2
    width = table_width(display)
    for name, text in lines:
        title = name if name.startswith("  ") else bold(name)
        title += " " * (indent - len(name))
        place = indent
        if width is not None and width - indent < _longest_word(text) <= width - _DEEPER:
            print(title.rstrip(" "))  # an id or a path on two lines is hard to copy
            title, place = " " * _DEEPER, _DEEPER
        first, *rest = folded(text, None if width is None else max(width - place, _LEAST_VALUE))
        print(*((title + first).rstrip(" "), *(" " * place + line for line in rest)), sep="\n")
    print()
    sys.stdout.flush()


def folded(text: str, room: int | None) -> list[str]:
    """Return a text as lines of at most ``room`` columns, broken between words if possible.

    A space at which a line breaks is not repeated at the beginning of the next.
    """
    if room is None or cell_len(text) <= room:
        return [text]
    if not text.isascii():
        return chop_cells(text, room)
    first, *rest = wrap(text, room, break_on_hyphens=False, drop_whitespace=False)
    return [first, *(line[1:] if line[:1] == " " else line for line in rest)]


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split(" ")))


def shown(value: Any, *, whole: bool = False, zone: tzinfo = timezone.utc) -> str:
    """Return a value as text for a person, without characters that control the terminal."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(zone).replace(tzinfo=None).isoformat(" ", "milliseconds")
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


def _exact(row: OutputRow, zone: tzinfo) -> dict[str, Any]:
    """Return a row for JSON: times in ISO 8601, bodies in Base64 and, if UTF-8, as text."""
    exact: dict[str, Any] = {}
    for name, value in row.items():
        exact[name] = value
        if isinstance(value, datetime):
            text = value.astimezone(zone).isoformat(timespec="milliseconds")
            exact[name] = text.replace("+00:00", "Z") if zone is timezone.utc else text
        elif name == "properties" and value is not None:
            exact[name] = dict(value)
        elif name == "body":
            exact[name] = None if value is None else base64.b64encode(value).decode()
            exact["body_text"] = None if value is None else _text_of(value)
    return exact


class TableColumn(NamedTuple):
    """A column as text; numbers (``is_number``) are aligned to the right."""

    name: str
    heading: str
    cells: tuple[str, ...]
    is_number: bool

    def natural(self, broken: bool) -> int:
        """Return the width that cuts nothing; a broken heading takes several lines."""
        lines = heading_lines(self.heading) if broken else [self.heading]
        return max(map(cell_len, (*lines, *self.cells)), default=0)

    def least(self) -> int:
        """Return the least width to which the column may be cut."""
        natural = self.natural(broken=True)
        if self.name not in _SOFT:
            return natural
        heading = max(map(cell_len, heading_lines(self.heading)))
        return min(natural, max(_SOFT[self.name][1], heading))


class Layout(NamedTuple):
    """The columns of a table, their widths, and the columns that had no room."""

    names: tuple[str, ...]
    widths: tuple[int, ...]
    broken: bool
    dropped: tuple[str, ...] = ()

    def holds(self, columns: Sequence[TableColumn]) -> bool:
        """Return whether further rows fit without cutting columns that must stay whole."""
        by_name = {column.name: column for column in columns}
        return all(by_name[n].least() <= width for n, width in zip(self.names, self.widths))


def heading_lines(heading: str) -> list[str]:
    """Return a heading broken after its underscores."""
    parts = heading.split("_")
    return [*(f"{part}_" for part in parts[:-1]), parts[-1]]


def fit_table(
    columns: Sequence[TableColumn], width: int | None, drop: Sequence[str] = ()
) -> Layout:
    """Return the layout of columns for a width; None for any width.

    First headings are broken, then texts are cut, free text before names; then columns are left
    out, those in ``drop`` first, in its order, then from the right. One column always stays.
    """
    kept = list(columns)
    dropped: list[str] = []
    if width is None:
        return _layout(kept, [column.natural(broken=False) for column in kept], False, dropped)
    while True:
        for broken in (False, True):
            widths = [column.natural(broken) for column in kept]
            if _total(widths) <= width:
                return _layout(kept, widths, broken, dropped)
        if _shrink(kept, widths, width):
            return _layout(kept, widths, True, dropped)
        if len(kept) == 1:
            return _layout(kept, [max(min(widths[0], width), 1)], True, dropped)
        names = [column.name for column in kept]
        gone = next((name for name in drop if name in names), names[-1])
        dropped.append(gone)
        kept = [column for column in kept if column.name != gone]


def _layout(kept: list[TableColumn], widths: list[int], broken: bool, dropped: list[str]) -> Layout:
    names = tuple(column.name for column in kept)
    return Layout(names, tuple(widths), broken, tuple(dropped))


def _total(widths: Iterable[int]) -> int:
    held = list(widths)
    return sum(held) + GAP * (len(held) - 1)


def _shrink(columns: list[TableColumn], widths: list[int], width: int) -> bool:
    """Cut widths in place until they fit; return whether they do."""
    for rank in (_FREE, _LISTS, _NAMES):
        soft = [i for i, c in enumerate(columns) if _SOFT.get(c.name, (-1, 0))[0] == rank]
        least = {i: columns[i].least() for i in soft}
        while _total(widths) > width:
            above = [i for i in soft if widths[i] > least[i]]
            if not above:
                break
            widths[max(above, key=widths.__getitem__)] -= 1
    return _total(widths) <= width


def table_heading(columns: Sequence[TableColumn], layout: Layout) -> list[str]:
    """Return the lines above the rows, the last of which is a rule."""
    shown = _in_layout(columns, layout)
    lines = [heading_lines(c.heading) if layout.broken else [c.heading] for c in shown]
    height = max(map(len, lines))
    padded = [[""] * (height - len(cell)) + cell for cell in lines]
    texts = [_joined(shown, layout, [cell[i] for cell in padded]) for i in range(height)]
    rule = "─" if _is_unicode() else "-"
    return [*texts, (" " * GAP).join(rule * width for width in layout.widths)]


def table_rows(columns: Sequence[TableColumn], layout: Layout) -> list[str]:
    """Return a line for each row."""
    shown = _in_layout(columns, layout)
    return [_joined(shown, layout, cells) for cells in zip(*(c.cells for c in shown))]


def _in_layout(columns: Sequence[TableColumn], layout: Layout) -> list[TableColumn]:
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in layout.names]


def _joined(columns: Sequence[TableColumn], layout: Layout, cells: Sequence[str]) -> str:
    parts = [_cell(*known) for known in zip(columns, layout.widths, cells)]
    return (" " * GAP).join(parts).rstrip(" ")


def _cell(column: TableColumn, width: int, text: str) -> str:
    missing = width - cell_len(text)
    if missing >= 0:
        return " " * missing + text if column.is_number else text + " " * missing
    mark = "…" if _is_unicode() else "~"
    if column.name in _CUT_IN_FRONT:
        return set_cell_size(mark + _end(text, width - 1), width)
    return set_cell_size(set_cell_size(text, width - 1) + mark, width)


def _end(text: str, width: int) -> str:
    """Return the longest end of a text that fits into the width."""
    start = max(len(text) - width, 0)
    while cell_len(text[start:]) > width:
        start += 1
    return text[start:]


def _is_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().startswith("utf")
