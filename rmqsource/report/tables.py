# SPDX-License-Identifier: Apache-2.0
"""Tables of a report: plain values -> HTML in which the values are escaped."""

from __future__ import annotations

import html
import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.safe_text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Cell:
    """A value and its format; long texts may be wrapped."""

    value: Any
    form: Callable[[Any], str] | None = None
    is_long: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the value is a number, which is aligned to the right."""
        return isinstance(self.value, numbers.Number)

    @property
    def text(self) -> str:
        """The value as text; empty if it is missing."""
        if _is_missing(self.value):
            return ""
        if self.form is not None:
            return self.form(self.value)
        return f"{int(self.value):,}" if self.is_number else str(self.value)

    @property
    def sort_value(self) -> str:
        """The HTML attribute with the number to sort by; empty for texts."""
        if not self.is_number or _is_missing(self.value):
            return ""
        return f' data-v="{float(self.value):.17g}"'


def _is_missing(value: Any) -> bool:
    # pandas.NA and NaT equal nothing, and the result of comparing NA has no truth value.
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def table_html(name: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table whose rows become cards on a narrow screen, each value with its heading.

    Columns without values are left out, except the first. The roles repeat those that the elements
    have by default: browsers drop these when the layout changes.
    """
    filled = [i for i in range(len(heads)) if i == 0 or any(row[i].text for row in rows)]
    heads, rows = [heads[i] for i in filled], [[row[i] for i in filled] for row in rows]
    right = [any(row[i].is_number for row in rows) for i in range(len(heads))]
    head = "".join(
        f'<th role="columnheader" scope="col"{_class(is_right, is_long=False)}>{text(name)}</th>'
        for name, is_right in zip(heads, right)
    )
    lines = "".join(f'<tr role="row">{_cells(heads, row, right)}</tr>\n' for row in rows)
    return (
        f'<div class="wide"><table role="table" aria-label="{text(name)}">'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
        f'<tbody role="rowgroup">{lines}</tbody></table></div>\n'
    )


def _cells(heads: Sequence[str], row: Sequence[Cell], right: Sequence[bool]) -> str:
    return "".join(
        f'<td role="cell" data-label="{text(head)}"{cell.sort_value}'
        f"{_class(is_right, is_long=cell.is_long)}>{text(cell.text)}</td>"
        for head, cell, is_right in zip(heads, row, right)
    )


def _class(is_right: bool, *, is_long: bool) -> str:
    if is_right:
        return ' class="n"'
    return ' class="long"' if is_long else ""


def text(value: str) -> str:
    """Return a text as HTML, for contents and for attributes in double quotes."""
    return html.escape(printable(value), quote=True)


def note(value: str) -> str:
    """Return a remark as a paragraph."""
    return f'<p class="note">{text(value)}</p>\n'
