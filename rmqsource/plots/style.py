# SPDX-License-Identifier: Apache-2.0
"""Style of the plots: colours that the colour-blind can distinguish, units, time axes, labels."""

from __future__ import annotations

import io
import math
import textwrap
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rmqsource.explore.log_survey import CLASSES_PER_DOUBLING
from rmqsource.extras import notebook_package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Callable

# Okabe and Ito's palette without its yellow, which is faint on white, then Tol's; the rest is grey.
COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"),
    *("#332288", "#882255", "#44AA99", "#117733"),
)
ACCENT, WARNING, REST = "#0072B2", "#D55E00", "#9A9A9A"
INK, FAINT, GRID = "#222222", "#D8D8D8", "#ECECEC"

_STYLE = {
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 12,
    "axes.titlecolor": INK,
    "axes.axisbelow": True,
    "axes.grid": False,
    "figure.facecolor": "white",
    "figure.dpi": 100,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": GRID,
    "legend.frameon": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "rmqsource",
}
_LABEL_CHARACTERS = 34
_MISSING = "\N{WHITE SQUARE}"
_PAGE_CHARACTERS, _AXES_CHARACTERS = 78, 48
_OWN_FIGURE = "rmqsource"
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_KILO = 1000
_ROW_INCHES, _EDGE_INCHES = 0.27, 1.0
_NOTEBOOK_DPI = 80
_PAGE_CHARACTERS_WIDE = 104
_PAGE_INCHES, _NARROW_INCHES = 9.0, 6.0
_CHARACTERS_PER_INCH = 10
_EXACT_BELOW = 2 * CLASSES_PER_DOUBLING


@contextmanager
def styled() -> Iterator[None]:
    """Draw in this module's style within the block; later plots are not affected."""
    with notebook_package("matplotlib").rc_context(_STYLE):
        yield


def axes_or_new(ax: Any, height: float = 3.6) -> Any:
    """Return the given axes, or those of a new figure that is as wide as a page."""
    return new_axes(_PAGE_INCHES, height) if ax is None else ax


def new_axes(width: float, height: float) -> Any:
    """Return the axes of a new figure; width and height are in inches."""
    # Not pyplot's: a figure that it does not know is freed with its last user.
    figure = _figure_class()(figsize=(width, height), layout="constrained", label=_OWN_FIGURE)
    return figure.add_subplot()


def is_narrow(ax: Any) -> bool:
    """Return whether the axes are from `new_axes` and narrow, for a phone."""
    figure = ax.figure
    return bool(figure.get_label() == _OWN_FIGURE and figure.get_figwidth() < _NARROW_INCHES)


def x_label(ax: Any, text: str) -> None:
    """Set the label of the x axis, in as many lines as it needs."""
    width = round(ax.figure.get_figwidth() * _CHARACTERS_PER_INCH)
    ax.set_xlabel("\n".join(textwrap.wrap(text, width)))


def _figure_class() -> Any:
    """Return a class of figures that notebooks display as pictures."""
    base = notebook_package("matplotlib.figure").Figure

    def picture(figure: Any) -> bytes:
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=_NOTEBOOK_DPI)
        return out.getvalue()

    return type("Figure", (base,), {"_repr_png_": picture})


def title(ax: Any, text: str) -> None:
    """Set the title that states the result; a long one is wrapped.

    Above axes from `new_axes` it begins at the edge of the figure, where it has room; above other
    axes at their edge, in shorter lines.
    """
    is_own = ax.figure.get_label() == _OWN_FIGURE
    lines = [""]
    for word in drawable(text).split(" "):
        if len(lines[-1]) + len(word) > (_PAGE_CHARACTERS if is_own else _AXES_CHARACTERS):
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    shown = "\n".join(line for line in lines if line)
    if is_own:
        size, weight = _STYLE["axes.titlesize"], _STYLE["axes.titleweight"]
        ax.figure.suptitle(shown, x=0.008, ha="left", size=size, weight=weight, color=INK)
    else:
        ax.set_title(shown)


def nothing(ax: Any, text: str) -> Any:
    """State on empty axes that there is nothing to show."""
    title(ax, text)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def short(text: str | None, most: int = _LABEL_CHARACTERS) -> str:
    """Return a label, shortened in the middle if it is too long."""
    shown = "(none)" if text is None else drawable(text)
    if len(shown) <= most:
        return shown
    half = (most - 1) // 2
    return f"{shown[: most - 1 - half]}…{shown[-half:]}"


def drawable(text: str) -> str:
    """Replace control characters and those that the font cannot draw."""
    known = _characters()
    return "".join(c if ord(c) in known else _MISSING for c in text)


_known: list[frozenset[int]] = []


def _characters() -> frozenset[int]:
    if not _known:
        manager = notebook_package("matplotlib.font_manager")
        path = manager.findfont("DejaVu Sans")
        drawn = manager.get_font(path).get_charmap()
        _known.append(frozenset(code for code in drawn if chr(code).isprintable()))
    return _known[0]


def bytes_text(count: float) -> str:
    """Return a number of bytes with a unit: 415 kB."""
    size = float(count)
    unit = 0
    while size >= _KILO and unit < len(_BYTE_UNITS) - 1:
        size /= _KILO
        unit += 1
    return f"{_three_digits(size) if unit else f'{size:.0f}'} {_BYTE_UNITS[unit]}"


def duration_text(milliseconds: float) -> str:
    """Return a time with a unit: 3 ms, 12 s, 4 min, 2.5 h, 3 days."""
    units = ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
    for width, name in units:
        if abs(milliseconds) >= width:
            return f"{_three_digits(milliseconds / width)} {name}"
    return f"{_three_digits(milliseconds)} ms"


def count_text(count: float) -> str:
    """Return a count: 12,345 or 1.2 million."""
    if abs(count) >= 1_000_000:  # noqa: PLR2004 (a million)
        return f"{_three_digits(count / 1_000_000)} million"
    return f"{count:,.0f}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 message, 2 messages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def about_text(value: int, text: Callable[[float], str]) -> str:
    """Return a quantile as text; with "about" if it is too large to be exact."""
    return f"about {text(value)}" if value >= _EXACT_BELOW else text(value)


def percent_text(share: float) -> str:
    """Return a share as percent."""
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 1 or percent == 0 else "under 1 %"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    digits = max(2 - math.floor(math.log10(abs(value)) + 1e-9), 0)
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def bytes_axis(axis: Any) -> None:
    """Label an axis of bytes."""
    axis.set_major_formatter(_formatter(bytes_text))


def count_axis(axis: Any) -> None:
    """Label an axis of counts; whole numbers only."""
    ticker = notebook_package("matplotlib.ticker")
    axis.set_major_locator(ticker.MaxNLocator(6, integer=True))
    axis.set_major_formatter(_formatter(count_text))


def duration_axis(axis: Any) -> None:
    """Label an axis of ms."""
    axis.set_major_formatter(_formatter(duration_text))


def _formatter(text: Any) -> Any:
    return notebook_package("matplotlib.ticker").FuncFormatter(lambda value, _: text(value))


def time_axis(ax: Any, begin: Any, end: Any, what: str = "store time") -> None:
    """Make the x axis a time axis in UTC with few labels; the day is below them."""
    dates = notebook_package("matplotlib.dates")
    seconds = (end - begin).total_seconds()
    if seconds <= _SHORT_SECONDS:
        _short_time_axis(ax, begin, end)
    else:
        least, most = (3, 8) if ax.figure.get_figwidth() >= _PAGE_INCHES else (2, 5)
        locator = dates.AutoDateLocator(minticks=least, maxticks=most, tz="UTC")
        ax.xaxis.set_major_locator(locator)
        form = next(form for most, form in _TIME_FORMS if seconds <= most)
        ax.xaxis.set_major_formatter(dates.DateFormatter(form, tz="UTC"))
    days = [moment.strftime("%Y-%m-%d") for moment in (begin, end)]
    same = " to ".join(dict.fromkeys(days))
    x_label(ax, f"{what}, {same} (UTC)")


def _short_time_axis(ax: Any, begin: Any, end: Any) -> None:
    """Label a few whole ms: the date locator warns about times so close together."""
    dates = notebook_package("matplotlib.dates")
    count = 3 if is_narrow(ax) else 4
    step = max(math.ceil((end - begin).total_seconds() * 1000 / count), 1)
    moments = [begin + timedelta(milliseconds=step * number) for number in range(count + 1)]
    shown = [moment for moment in moments if moment <= end]
    labels = [moment.strftime("%H:%M:%S.%f")[:-3] for moment in shown]
    ax.set_xticks(dates.date2num(shown), labels)


_SHORT_SECONDS = 5
_TIME_FORMS = (
    (1_200, "%H:%M:%S"),
    (93_600, "%H:%M"),
    (600_000, "%d %b %H:%M"),
    (float("inf"), "%Y-%m-%d"),
)
"""Length of the axis in seconds (at most), and the format of its labels."""


def bars(
    ax: Any, labels: Sequence[str], values: Sequence[float], texts: Sequence[str], colours: Any
) -> None:
    """Draw horizontal bars from top to bottom, each followed by its value; no x axis."""
    places = list(range(len(labels)))
    ax.barh(places, values, color=colours, height=0.7)
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    ax.set_xticks([])
    for side in ("bottom", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    most = max([*values, 0])
    # The texts after the bars need room too, in the width that the labels leave.
    page = _PAGE_CHARACTERS_WIDE - max(len(label) for label in labels)
    room = min(max(len(text) for text in texts) / max(page, 1), 0.8)
    ax.set_xlim(0, (most or 1) / (1 - room))
    for place, value, text in zip(places, values, texts):
        ax.text(value + most * 0.01, place, text, va="center", color=INK)


def rows_height(rows: int) -> float:
    """Return the height in inches of a plot with so many rows."""
    return _EDGE_INCHES + _ROW_INCHES * max(rows, 2)
