"""The plot of traffic over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqsource.extras import notebook_package
from rmqsource.plots import style

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMED_TOPICS = 5
_REST = "all others"


def traffic(frame: Any, ax: Any = None, value: str = "messages") -> Any:
    """Draw messages or bytes over time, stacked by topic: the largest five and all others.

    Parameters
    ----------
    frame
        Of `explore.traffic`.
    ax
        Axes; None: new ones.
    value
        ``messages`` or ``bytes``.
    """
    with style.styled():
        ax = style.axes_or_new(ax)
        if len(frame) == 0:
            return style.nothing(ax, "No messages")
        text = style.bytes_text if value == "bytes" else style.count_text
        step_ms = frame.attrs["step_ms"]
        width = style.duration_text(step_ms)
        table, names = _by_step(frame, value, step_ms)
        dates = notebook_package("matplotlib.dates")
        edges = dates.date2num([*table.index, table.index[-1] + table.index.freq])
        bottom = table[names[0]] * 0
        for name, colour in zip(names, _colours(frame, names)):
            top = bottom + table[name]
            # One shape a topic: a rectangle for each step takes seconds to draw.
            ax.stairs(top, edges, baseline=bottom, fill=True, color=colour, label=style.short(name))
            bottom = top
        ax.xaxis_date(tz="UTC")
        ax.set_xlim(edges[0], edges[-1])
        ax.set_ylim(0, bottom.max() * 1.05)
        peak = bottom.idxmax()
        when = peak.strftime("%Y-%m-%d %H:%M:%S")
        most = int(bottom.max())
        unit = "" if value == "bytes" else " message" if most == 1 else " messages"
        style.title(ax, f"Traffic peaks at {text(most)}{unit} in {width}, at {when} UTC")
        style.time_axis(ax, table.index[0], table.index[-1])
        ax.set_ylabel(f"{value} per {width}")
        (style.bytes_axis if value == "bytes" else style.count_axis)(ax.yaxis)
        ax.grid(axis="y")
        _legend(ax)
        return ax


def _by_step(frame: Any, value: str, step_ms: int) -> tuple[Any, list[str]]:
    """Return a row per step and a column per named topic, the largest first, others last."""
    totals = frame.groupby("topic")[value].sum().sort_values(ascending=False, kind="stable")
    named = list(totals.index[:_NAMED_TOPICS])
    topic = frame["topic"].where(frame["topic"].isin(named), _REST)
    table = frame.assign(topic=topic).pivot_table(
        index="time", columns="topic", values=value, aggfunc="sum", fill_value=0
    )
    pandas = notebook_package("pandas")
    step = pandas.Timedelta(step_ms, unit="ms")
    steps = pandas.date_range(table.index[0], table.index[-1], freq=step)
    table = table.reindex(steps, fill_value=0)
    return table, [name for name in [*named, _REST] if name in table.columns]


def _colours(frame: Any, names: Sequence[str]) -> list[str]:
    """Return the colours of topics; the same ones for messages as for bytes."""
    totals = frame.groupby("topic")[["messages", "bytes"]].sum()
    shown: dict[str, str] = {}
    for value in ("messages", "bytes"):
        order = totals[value].sort_values(ascending=False, kind="stable")
        for name in order.index[:_NAMED_TOPICS]:
            if name not in shown:
                shown[name] = style.COLOURS[len(shown)]
    return [shown.get(name, style.REST) for name in names]


def _legend(ax: Any) -> None:
    """Name the topics in the order in which they are stacked, from the top."""
    handles, labels = ax.get_legend_handles_labels()
    if style.is_narrow(ax):
        ax.figure.legend(handles[::-1], labels[::-1], loc="outside lower left")
    else:
        ax.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0))
