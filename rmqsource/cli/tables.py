"""Tables that fit a terminal: what gives way is text that can be cut, then whole columns."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
"""Columns that may be cut: who gives way first, and what it keeps. All others stay whole."""
_CUT_IN_FRONT = {"path", "store", "directory"}
"""Their ends tell more."""


class Column(NamedTuple):
    """A column as text; ``is_number``: stands at the right."""

    name: str
    heading: str
    cells: tuple[str, ...]
    is_number: bool

    def natural(self, broken: bool) -> int:
        """Return the width that cuts nothing; a broken heading stands on several lines."""
        lines = heading_lines(self.heading) if broken else [self.heading]
        return max(map(cell_len, (*lines, *self.cells)), default=0)

    def least(self) -> int:
        """Return the least width that the column can have."""
        natural = self.natural(broken=True)
        if self.name not in _SOFT:
            return natural
        heading = max(map(cell_len, heading_lines(self.heading)))
        return min(natural, max(_SOFT[self.name][1], heading))


class Layout(NamedTuple):
    """Which columns there are, how wide, and which had no room."""

    names: tuple[str, ...]
    widths: tuple[int, ...]
    broken: bool
    dropped: tuple[str, ...] = ()

    def holds(self, columns: Sequence[Column]) -> bool:
        """Return whether further rows fit without cutting what has to be whole."""
        by_name = {column.name: column for column in columns}
        return all(by_name[n].least() <= width for n, width in zip(self.names, self.widths))


def heading_lines(heading: str) -> list[str]:
    """Return a heading broken after its underscores."""
    parts = heading.split("_")
    return [*(f"{part}_" for part in parts[:-1]), parts[-1]]


def fit(columns: Sequence[Column], width: int | None, drop: Sequence[str] = ()) -> Layout:
    """Return how columns fit into a width; None is any width.

    Headings are broken first, then texts that can be cut are cut, free text before names; then
    columns are left out, those in ``drop`` first, in its order, then from the right. One stays.
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


def _layout(kept: list[Column], widths: list[int], broken: bool, dropped: list[str]) -> Layout:
    names = tuple(column.name for column in kept)
    return Layout(names, tuple(widths), broken, tuple(dropped))


def _total(widths: Iterable[int]) -> int:
    held = list(widths)
    return sum(held) + GAP * (len(held) - 1)


def _shrink(columns: list[Column], widths: list[int], width: int) -> bool:
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


def heading(columns: Sequence[Column], layout: Layout) -> list[str]:
    """Return the lines above the rows, the last of which is a rule."""
    shown = _in_layout(columns, layout)
    lines = [heading_lines(c.heading) if layout.broken else [c.heading] for c in shown]
    height = max(map(len, lines))
    padded = [[""] * (height - len(cell)) + cell for cell in lines]
    texts = [_joined(shown, layout, [cell[i] for cell in padded]) for i in range(height)]
    rule = "─" if _is_unicode() else "-"
    return [*texts, (" " * GAP).join(rule * width for width in layout.widths)]


def rows(columns: Sequence[Column], layout: Layout) -> list[str]:
    """Return a line for each row."""
    shown = _in_layout(columns, layout)
    return [_joined(shown, layout, cells) for cells in zip(*(c.cells for c in shown))]


def _in_layout(columns: Sequence[Column], layout: Layout) -> list[Column]:
    by_name = {column.name: column for column in columns}
    return [by_name[name] for name in layout.names]


def _joined(columns: Sequence[Column], layout: Layout, cells: Sequence[str]) -> str:
    parts = [_cell(*known) for known in zip(columns, layout.widths, cells)]
    return (" " * GAP).join(parts).rstrip(" ")


def _cell(column: Column, width: int, text: str) -> str:
    missing = width - cell_len(text)
    if missing >= 0:
        return " " * missing + text if column.is_number else text + " " * missing
    mark = "…" if _is_unicode() else "~"
    if column.name in _CUT_IN_FRONT:
        return set_cell_size(mark + _end(text, width - 1), width)
    return set_cell_size(set_cell_size(text, width - 1) + mark, width)


def _end(text: str, width: int) -> str:
    """Return the longest end of a text that is no wider."""
    start = max(len(text) - width, 0)
    while cell_len(text[start:]) > width:
        start += 1
    return text[start:]


def _is_unicode() -> bool:
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().startswith("utf")
