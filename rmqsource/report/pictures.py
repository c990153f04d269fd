"""Pictures of a report: plots as SVG for both screens and both colour schemes, bars as HTML."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from rmqsource.plots import style
from rmqsource.report.text import note, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqsource.plots.bars import Bar, Bars

_DARK = {
    style.INK: "#e6e6e6",
    style.FAINT: "#4a5056",
    style.GRID: "#343a40",
    style.REST: "#8b9197",
    "#0072B2": "#3d9be0",
    "#D55E00": "#ff8440",
    "#332288": "#9485f0",
    "#882255": "#d0669c",
    "#117733": "#4dbd6c",
}
"""Colours that a dark page does not show well, and what stands for them there."""

_WIDE, _NARROW = 7.2, 3.9
_PHONE = "(max-width: 44rem)"


def picture(draw: Callable[[Any], Any], height: float = 3.2, narrow_height: float = 3.0) -> str:
    """Return a plot below its title: one for desks, one for phones; a sentence if it is empty.

    Parameters
    ----------
    draw
        Draws into axes and returns them.
    height, narrow_height
        Inches.
    """
    with style.styled():
        ax = draw(style.new_axes(_WIDE, height))
        title = ax.figure.get_suptitle().replace("\n", " ")
        if not ax.has_data():
            return note(f"{title}.")
        narrow = draw(style.new_axes(_NARROW, narrow_height))
        wide, small = _svg(ax.figure), _svg(narrow.figure)
    size, small_size = _size(ax.figure), _size(narrow.figure)
    return (
        f"<figure><h3>{text(title)}</h3>\n<picture>"
        f'<source media="{_PHONE}" {small_size} srcset="{small}">'
        f'<img alt="{text(title)}" {size} src="{wide}"></picture></figure>\n'
    )


def _size(figure: Any) -> str:
    width, height = (round(inches * 96) for inches in figure.get_size_inches())
    return f'width="{width}" height="{height}"'


def _svg(figure: Any) -> str:
    """Return a figure as an image of its own, so that no two share names inside."""
    figure.suptitle("")  # it stands above the picture, where it can be broken on a narrow screen
    out = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    figure.savefig(out, format="svg", metadata=metadata, transparent=True)
    data = base64.b64encode(_with_dark_colours(out.getvalue()).encode()).decode()
    return f"data:image/svg+xml;base64,{data}"


def _with_dark_colours(svg: str) -> str:
    names = []
    for number, (light, dark) in enumerate(_DARK.items()):
        svg = svg.replace(light.lower(), f"var(--c{number}, {light.lower()})")
        names.append(f"--c{number}: {dark};")
    rule = f"@media (prefers-color-scheme: dark) {{ :root {{ {' '.join(names)} }} }}"
    return svg.replace("<defs>", f"<defs><style>{rule}</style></defs><defs>", 1)


def bars(found: Bars) -> str:
    """Return a ranking as lines of HTML, which need no width; a sentence if it is empty."""
    if not found.rows:
        return note(f"{found.title}.")
    most = max(bar.value for bar in found.rows) or 1
    kind = "warning" if found.is_warning else "most"
    lines = "".join(_bar(bar, 100 * bar.value / most, kind) for bar in found.rows)
    # All values are as wide as the longest one, so that all bars have the same scale.
    width = max(len(bar.text) for bar in found.rows)
    return (
        f'<figure><h3>{text(found.title)}</h3>\n<ul class="bars" style="--value:{width}ch">'
        f"{lines}</ul></figure>\n"
    )


def _bar(bar: Bar, percent: float, kind: str) -> str:
    label = " · ".join(text(part) for part in bar.label)
    marked = f' class="{kind}"' if bar.is_marked else ""
    return (
        f'<li><span class="label">{label}</span>'
        f'<span class="bar"><i{marked} style="width:{percent:.2f}%"></i></span>'
        f'<span class="value">{text(bar.text)}</span></li>\n'
    )
