# SPDX-License-Identifier: Apache-2.0
"""Plots of the flow of messages: consumer lag, the life of a message, look-up against scan."""

from __future__ import annotations

import math
from typing import Any

from rmqsource.explore.trace_events import (
    CHECKED,
    COMMITTED,
    DEAD_LETTERED,
    DELAYED,
    DELIVERED,
    GIVEN_UP,
    HALF,
    RETRIED,
    ROLLED_BACK,
    SENT,
    STORED,
)
from rmqsource.plots import style
from rmqsource.plots.bars import LISTED, Bar, Bars, draw

_WORDS = {
    SENT: "sent",
    STORED: "stored",
    HALF: "half message",
    CHECKED: "checked",
    COMMITTED: "committed",
    ROLLED_BACK: "rolled back",
    GIVEN_UP: "given up",
    DELAYED: "waits",
    DELIVERED: "delivered",
    RETRIED: "retried",
    DEAD_LETTERED: "dead letter",
}
_BAD = frozenset({ROLLED_BACK, GIVEN_UP, DEAD_LETTERED})
_WAITING = frozenset({DELAYED, HALF, CHECKED})


def consumer_lag(frame: Any, ax: Any = None) -> Any:
    """Draw the queues with the largest consumer lag, in messages and time.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        return draw(bars_of_lag(frame), ax)


def bars_of_lag(frame: Any) -> Bars:
    """Return the bars of `consumer_lag`; those of the group with the largest lag are marked."""
    behind = frame[frame["lag"] > 0].sort_values("lag", ascending=False, kind="stable")
    if len(behind) == 0:
        return Bars("No consumer group is behind")
    groups = behind.groupby("group")["lag"].sum().sort_values(ascending=False, kind="stable")
    worst = groups.index[0]
    rows = tuple(
        Bar(
            (row.group, f"{row.topic}/{row.queue_id}"),
            row.lag,
            f"{row.lag:,}{_behind(row.lag_ms)}",
            row.group == worst,
        )
        for row in behind.head(LISTED).astype({"lag_ms": "float64"}).itertuples()
    )
    longest = behind.loc[behind["group"] == worst, "lag_ms"].astype("float64").max()
    by = f", by up to {style.duration_text(longest)}" if longest > 0 else ""
    messages = style.plural(int(groups.iloc[0]), "message")
    return Bars(f"{style.short(worst)} is {messages} behind{by}", rows, is_warning=True)


def _behind(lag_ms: float) -> str:
    """Return the time as text; empty if it is unknown (NaN)."""
    return "" if math.isnan(lag_ms) else f"   {style.duration_text(lag_ms)}"


def life(frame: Any, ax: Any = None) -> Any:
    """Draw the life of one message: its events, and the wait before each.

    The events are drawn at equal distances, as waits range from milliseconds to hours.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        ax = style.axes_or_new(ax, 1.4 + 0.42 * max(len(frame), 2))
        if len(frame) == 0:
            return style.nothing(ax, "No such message")
        places = list(range(len(frame)))
        ax.plot([0] * len(places), places, color=style.FAINT, linewidth=2, zorder=1)
        for place, row in zip(places, frame.itertuples()):
            colour = style.WARNING if row.event in _BAD else style.ACCENT
            face = "white" if row.event in _WAITING else colour
            ax.scatter([0], [place], s=70, color=face, edgecolors=colour, linewidths=2, zorder=2)
            ax.text(0.14, place, row.at.strftime("%H:%M:%S.%f")[:-3], va="center")
            ax.text(1.1, place, _WORDS[row.event], va="center", weight="bold", color=colour)
            where = row.topic if row.event == SENT else f"{row.topic}/{row.queue_id}"
            ax.text(2.2, place, style.short(where, 44), va="center", color=INK_SOFT)
            if place:
                wait = style.duration_text(float(row.wait_ms))
                ax.text(-0.14, place - 0.5, f"+ {wait}", va="center", ha="right", color=INK_SOFT)
        ax.set_xlim(-1.1, 6.2)
        ax.set_ylim(len(places) - 0.5, -0.6)
        ax.axis("off")
        took = (frame["at"].iloc[-1] - frame["at"].iloc[0]).total_seconds() * 1000
        last = frame.iloc[-1]
        day = frame["at"].iloc[0].strftime("%Y-%m-%d")
        ended = f"{_WORDS[last['event']]} after {style.duration_text(took)}"
        style.title(ax, f"{style.short(frame['sent_to'].iloc[0])}: {ended} ({day}, UTC)")
        return ax


INK_SOFT = "#555555"


def lookup_and_scan(frame: Any, ax: Any = None) -> Any:
    """Draw the bytes that a key look-up and a full scan read, and the time that each took.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        ax = style.axes_or_new(ax, 1.8)
        labels = [f"{row.way} ({row.access_path})" for row in frame.itertuples()]
        texts = [
            f"{style.bytes_text(row.bytes_to_read)}, in {style.duration_text(row.seconds * 1000)}"
            for row in frame.itertuples()
        ]
        colours = [style.ACCENT, *[style.REST] * (len(frame) - 1)]
        style.bars(ax, labels, list(frame["bytes_to_read"]), texts, colours)
        read = frame["bytes_to_read"].to_list()
        share = style.percent_text(read[0] / read[1]) if read[1] else "0 %"
        style.title(ax, f"The lookup reads {share} of what the scan reads")
        return ax
