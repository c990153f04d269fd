# SPDX-License-Identifier: Apache-2.0
"""Plots over time: the traffic of stores, and the lag of streams that read them."""

from __future__ import annotations

import math
from collections import Counter
from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.extras import notebook_package
from rmqsource.plots import style
from rmqsource.stream.stream_lag import StoreLag, store_lags

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

_NAMED_TOPICS = 5
_REST = "all others"


def traffic(frame: Any, ax: Any = None, value: str = "messages") -> Any:
    """Draw messages or bytes over time, stacked by topic: the largest five and all others.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
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
            # One shape per topic: a rectangle for each step would take seconds to draw.
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
    """Return a table with a row per step, and its columns: largest topics first, others last."""
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
    """Return the colours of topics, which are equal for messages and for bytes."""
    totals = frame.groupby("topic")[["messages", "bytes"]].sum()
    shown: dict[str, str] = {}
    for value in ("messages", "bytes"):
        order = totals[value].sort_values(ascending=False, kind="stable")
        for name in order.index[:_NAMED_TOPICS]:
            if name not in shown:
                shown[name] = style.COLOURS[len(shown)]
    return [shown.get(name, style.REST) for name in names]


def _legend(ax: Any, order: int = -1) -> None:
    """Add a legend: in stacking order from the top, or as drawn if ``order`` is 1."""
    handles, labels = (found[::order] for found in ax.get_legend_handles_labels())
    if style.is_narrow(ax):
        ax.figure.legend(handles, labels, loc="outside lower left")
    else:
        ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0))


_NAMED_STORES = 6
_LAGS: dict[str, tuple[str, Any]] = {
    "messages": ("messages_behind", lambda count: style.plural(count, "message")),
    "bytes": ("bytes_behind", style.bytes_text),
    "time": ("ms_behind", style.duration_text),
}
"""Kind of lag -> the attribute of `StoreLag`, and the function that formats it."""


class _Line(NamedTuple):
    """The lag of one source of a query on one store; NaN if unknown."""

    label: str
    times: list[datetime]
    behind: list[float]

    @property
    def most(self) -> float:
        return max((value for value in self.behind if not math.isnan(value)), default=math.nan)


def stream_lag(progresses: Iterable[Any], ax: Any = None, value: str = "messages") -> Any:
    """Draw the lag of streams after each batch: a line per store.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    value
        ``messages``, ``bytes``, or ``time``: between the store times of the last message that was
        read and of the last one in the store.
    """
    with style.styled():
        ax = style.axes_or_new(ax)
        field, text = _LAGS[value]
        lines = _lines(progresses, field)
        if not lines:
            return style.nothing(ax, "No progress report shows how far behind a stream is")
        worst = lines[0]
        if worst.most == 0:
            return style.nothing(ax, "No stream is behind after any batch")
        for place, line in enumerate(lines):
            is_named = place < _NAMED_STORES
            ax.plot(
                line.times,
                line.behind,
                color=style.COLOURS[place] if is_named else style.REST,
                label=line.label if is_named else _REST if place == _NAMED_STORES else None,
                marker="o",
                markersize=4,
                clip_on=False,
                zorder=3 if is_named else 2,
            )
        _lag_axes(ax, lines, value)
        style.title(ax, _lag_title(worst, text))
        return ax


def _lag_title(worst: _Line, text: Any) -> str:
    when = worst.times[worst.behind.index(worst.most)].strftime("%Y-%m-%d %H:%M:%S")
    found = f"Up to {text(worst.most)} behind {worst.label}, at {when} UTC"
    last = worst.behind[-1]
    return found if math.isnan(last) else f"{found}; {text(last) if last else 'none'} at the end"


def _lag_axes(ax: Any, lines: list[_Line], value: str) -> None:
    begin = min(line.times[0] for line in lines)
    end = max(line.times[-1] for line in lines)
    ax.xaxis_date(tz="UTC")
    margin = max((end - begin) / 50, timedelta(milliseconds=1))
    ax.set_xlim(begin - margin, end + margin)
    style.time_axis(ax, begin, end, "begin of the trigger")
    ax.set_ylim(0, lines[0].most * 1.05)
    ax.set_ylabel(f"{value} behind")
    axes = {"messages": style.count_axis, "bytes": style.bytes_axis, "time": style.duration_axis}
    axes[value](ax.yaxis)
    ax.grid(axis="y")
    if len(lines) > 1:
        _legend(ax, order=1)


def _lines(progresses: Iterable[Any], field: str) -> list[_Line]:
    """Return a line for each store of each source whose lag is known, largest lag first."""
    lags = [
        lag
        for progress in progresses
        for lag in ([progress] if isinstance(progress, StoreLag) else store_lags(progress))
    ]
    by_line: dict[tuple[str, int, str], list[StoreLag]] = {}
    for lag in sorted(lags, key=lambda lag: lag.at):
        by_line.setdefault((lag.query_id, lag.source, lag.store), []).append(lag)
    names = _short_names({lag.store for lag in lags})
    queries = {lag.query_id for lag in lags}
    readers = Counter((query, store) for query, _, store in by_line)
    lines = []
    for (query, source, store), found in by_line.items():
        notes = [style.short(found[0].query_name or query, 13)] if len(queries) > 1 else []
        notes += [f"source {source}"] if readers[query, store] > 1 else []
        label = style.short(names[store]) + (f" ({', '.join(notes)})" if notes else "")
        behind = [math.nan if (n := getattr(lag, field)) is None else n for lag in found]
        lines.append(_Line(label, [lag.at for lag in found], behind))
    known = [line for line in lines if not math.isnan(line.most)]
    return sorted(known, key=lambda line: -line.most)


def _short_names(stores: Iterable[str]) -> dict[str, str]:
    """Drop the stores' common prefix: /data/a/store and /data/b/store are a/store and b/store."""
    parts = {store: store.rstrip("/").split("/") for store in stores}
    same = takewhile(lambda names: len(set(names)) == 1, zip(*parts.values()))
    fewest = min((len(part) for part in parts.values()), default=1)
    shared = min(len(list(same)), fewest - 1)
    return {store: "/".join(part[shared:]) for store, part in parts.items()}
