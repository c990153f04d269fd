# SPDX-License-Identifier: Apache-2.0
"""Rankings as bars, which are drawn here or as HTML by a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqsource.plots import style

LISTED = 12
_PART_CHARACTERS = 26


@dataclass(frozen=True)
class Bar:
    """One bar: its label, its length, and its value as text."""

    label: tuple[str, ...]
    """One name or two, such as a topic and its key or a group and its queue."""
    value: float
    text: str
    is_marked: bool = False


@dataclass(frozen=True)
class Bars:
    """The longest bars of a ranking, longest first, under a sentence that states the result."""

    title: str
    rows: tuple[Bar, ...] = ()
    """Empty if there is nothing to compare; the title then says so."""
    is_warning: bool = False
    """Whether the marked bars are a problem, and not only the largest."""


def draw(found: Bars, ax: Any) -> Any:
    """Draw a ranking into the given axes, or new ones; long names are shortened in the middle."""
    ax = style.axes_or_new(ax, style.rows_height(len(found.rows)))
    if not found.rows:
        return style.nothing(ax, found.title)
    marked = style.WARNING if found.is_warning else style.ACCENT
    style.bars(
        ax,
        [_label(bar.label) for bar in found.rows],
        [bar.value for bar in found.rows],
        [bar.text for bar in found.rows],
        [marked if bar.is_marked else style.REST for bar in found.rows],
    )
    style.title(ax, found.title)
    return ax


def _label(parts: tuple[str, ...]) -> str:
    if len(parts) == 1:
        return style.short(parts[0])
    return "  ".join(style.short(part, _PART_CHARACTERS) for part in parts)
