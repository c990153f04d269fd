"""Tables of a report: plain values -> HTML that shows nothing of theirs as markup."""

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
    """A value and how it is written; long texts may be broken."""

    value: Any
    form: Callable[[Any], str] | None = None
    is_long: bool = False

    @property
    def is_number(self) -> bool:
        """Whether it stands at the right edge."""
        return isinstance(self.value, numbers.Number)

    @property
    def text(self) -> str:
        """The value as text; empty where there is none."""
        if _is_missing(self.value):
            return ""
        if self.form is not None:
            return self.form(self.value)
        return f"{int(self.value):,}" if self.is_number else str(self.value)


def _is_missing(value: Any) -> bool:
    # pandas.NA and NaT are equal to nothing, and NA refuses to say so.
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def table_html(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table that scrolls by itself where the page is narrow."""
    right = [any(row[i].is_number for row in rows) for i in range(len(heads))]
    head = "".join(
        f"<th{_class(is_right, is_long=False)}>{html.escape(name)}</th>"
        for name, is_right in zip(heads, right)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{_class(is_right, is_long=cell.is_long)}>{html.escape(printable(cell.text))}</td>"
            for cell, is_right in zip(row, right)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>\n"
    )


def _class(is_right: bool, *, is_long: bool) -> str:
    if is_right:
        return ' class="n"'
    return ' class="long"' if is_long else ""
