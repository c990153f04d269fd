# SPDX-License-Identifier: Apache-2.0
"""Plots of distributions: sizes, latency, queues."""

from __future__ import annotations

from typing import Any

from rmqsource.explore.log_survey import quantile
from rmqsource.extras import notebook_package
from rmqsource.plots import style
from store_core.topics import NORMAL

_LISTED = 12
_FEW_DECADES, _FEW_ON_A_PHONE = 3_000, 40
_NEARLY_EVEN = 1.05


def message_sizes(frame: Any, ax: Any = None) -> Any:
    """Draw the distribution of record sizes.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        ax = style.axes_or_new(ax)
        if len(frame) == 0:
            return style.nothing(ax, "No messages")
        _histogram(ax, _bars(frame))
        half, top = _quantile(frame, 50), _quantile(frame, 99)
        style.bytes_axis(ax.xaxis)
        style.x_label(ax, "bytes of a record (logarithmic)")
        half_text, top_text = (style.about_text(n, style.bytes_text) for n in (half, top))
        style.title(ax, f"Half of the records take up to {half_text}, 99 % up to {top_text}")
        return ax


def latency(frame: Any, ax: Any = None) -> Any:
    """Draw the distribution of times from born to stored; negative times count as 0.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        ax = style.axes_or_new(ax)
        frame = frame[frame["is_direct"]]
        if len(frame) == 0:
            return style.nothing(
                ax, "No message was stored directly, without a delay by the broker"
            )
        ahead = int(frame.loc[frame["low"] < 0, "messages"].sum())
        _histogram(ax, _bars(frame))
        half, top = _quantile(frame, 50), _quantile(frame, 99)
        style.duration_axis(ax.xaxis)
        style.x_label(ax, "from born (producer) to stored (broker); 0 ms is at the left end")
        half_text, top_text = (style.about_text(n, style.duration_text) for n in (half, top))
        clocks = f"; {style.plural(ahead, 'message')} below 0 by their clocks" if ahead else ""
        text = f"Half of the messages are stored within {half_text}, 99 % within {top_text}{clocks}"
        style.title(ax, text)
        return ax


def _bars(frame: Any) -> Any:
    """Return low, high and messages of the bars: four to a doubling, each of whole classes.

    A logarithmic axis has no 0: values below 1 are drawn left of 1.
    """
    numpy = notebook_package("numpy")
    low = frame["low"].to_numpy()
    width = 2.0 ** numpy.maximum(numpy.floor(numpy.log2(numpy.maximum(low, 1))) - 2, 0)
    begin = numpy.where(low < 1, 0.5, low // width * width)
    end = numpy.where(low < 1, 1, begin + width)
    bars = frame[["messages"]].assign(low=begin, high=end)
    return bars.groupby(["low", "high"], as_index=False)["messages"].sum()


def _histogram(ax: Any, table: Any) -> None:
    heights, edges = _steps(table)
    ax.stairs(heights, edges, fill=True, color=style.ACCENT)
    ax.set_xscale("log")
    ax.set_ylim(0, max(heights) * 1.05)
    low, high = edges[0], edges[-1]
    ax.set_xlim(low / 1.2, high * 1.2)
    ticker = notebook_package("matplotlib.ticker")
    few = _FEW_ON_A_PHONE if style.is_narrow(ax) else _FEW_DECADES
    steps = (1, 2, 5) if high / low < few else (1,)
    ax.xaxis.set_major_locator(ticker.LogLocator(10, steps, numticks=12))
    ax.xaxis.set_minor_locator(ticker.NullLocator())
    style.count_axis(ax.yaxis)
    ax.set_ylabel("messages")
    ax.grid(axis="y")


def _steps(table: Any) -> tuple[list[float], list[float]]:
    """Return the heights of a histogram and the edges between them; gaps are heights of 0."""
    heights: list[float] = []
    edges: list[float] = []
    for row in table.sort_values("low").itertuples():
        if edges and row.low > edges[-1]:
            heights.append(0)
            edges.append(row.low)
        edges += [] if edges else [row.low]
        heights.append(row.messages)
        edges.append(row.high)
    return heights, edges


def _quantile(frame: Any, percent: int) -> int:
    return quantile(frame["greatest"].to_numpy(), frame["messages"].to_numpy(), percent)


def queue_skew(frame: Any, ax: Any = None) -> Any:
    """Draw how unevenly topics are spread over their queues: a dot per queue, 1 is an even share.

    Parameters
    ----------
    frame
        From `explore.queue_skew`; the broker's own topics are left out.
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        frame = frame[frame["kind"] == NORMAL]
        queues = frame.groupby("topic")["queue_id"].transform("size")
        spread = frame[queues > 1]
        worst = spread.groupby("topic")["times_even"].max().sort_values(ascending=False)
        worst = worst.head(_LISTED)
        ax = style.axes_or_new(ax, style.rows_height(len(worst)) + 0.5)
        if len(worst) == 0:
            return style.nothing(ax, "No topic has messages in more than one queue")
        if worst.iloc[0] < _NEARLY_EVEN:
            return style.nothing(ax, "All topics are spread evenly over their queues")
        for place, topic in enumerate(worst.index):
            even = spread.loc[spread["topic"] == topic, "times_even"]
            colour = style.WARNING if place == 0 else style.ACCENT
            ax.plot(
                [even.min(), even.max()], [place, place], color=style.FAINT, linewidth=2, zorder=1
            )
            ax.scatter(even, [place] * len(even), color=colour, s=42, zorder=2, alpha=0.85)
        ax.axvline(1, color=style.INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
        names = [
            style.short(name, 16) if style.is_narrow(ax) else style.short(name)
            for name in worst.index
        ]
        ax.set_yticks(range(len(worst)), names)
        ax.set_ylim(len(worst) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        ax.set_xlim(0, max(worst.max() * 1.1, 2))
        style.x_label(ax, "messages of a queue, as a multiple of an even share (dashed line)")
        style.title(
            ax,
            f"{style.short(worst.index[0])} is the least even: its fullest queue has "
            f"{worst.iloc[0]:.2g} times an even share",
        )
        return ax
