"""Rankings as bars: what they say, told once, and drawn here or as HTML by a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqsource.plots import style

LISTED = 12
_PART_CHARACTERS = 26


@dataclass(frozen=True)
class Bar:
    """One line: what it is of, how long it is, and its value as text."""

    label: tuple[str, ...]
    """One name or two: a topic and its key, a group and its queue."""
    value: float
    text: str
    is_marked: bool = False


@dataclass(frozen=True)
class Bars:
    """The longest bars of a ranking, longest first, below a sentence that says the finding."""

    title: str
    rows: tuple[Bar, ...] = ()
    """Empty where there is nothing to compare; the sentence then says so."""
    is_warning: bool = False
    """Whether the marked ones are what to worry about, and not only the largest."""


def draw(found: Bars, ax: Any) -> Any:
    """Draw a ranking into axes, or into new ones; long names are shortened in the middle."""
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
