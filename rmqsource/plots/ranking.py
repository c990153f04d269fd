"""Plots of what is largest or most frequent: topics, tags, keys."""

from __future__ import annotations

from typing import Any

from rmqsource.extras import notebook_package
from rmqsource.plots import style

_LISTED = 12


def bytes_by_topic(frame: Any, ax: Any = None) -> Any:
    """Draw the bytes of the largest topics, and what they grow by a day.

    Parameters
    ----------
    frame
        Of `explore.topics`.
    ax
        Axes; None: new ones.
    """
    with style.styled():
        held = frame[frame["bytes"].astype("float64").fillna(0) > 0]
        held = held.groupby("topic", as_index=False)[["bytes", "bytes_per_day"]].sum()
        held = held.sort_values(["bytes", "topic"], ascending=[False, True])
        top = held.head(_LISTED)
        ax = style.axes_or_new(ax, style.rows_height(len(top)))
        if len(top) == 0:
            return style.nothing(ax, "No topic holds a message")
        total = held["bytes"].sum()
        texts = [
            f"{style.bytes_text(size)}   ({style.bytes_text(rate)} a day)"
            for size, rate in zip(top["bytes"], top["bytes_per_day"].astype("float64").fillna(0))
        ]
        first = top.iloc[0]
        colours = [style.ACCENT, *[style.REST] * (len(top) - 1)]
        style.bars(
            ax, [style.short(name) for name in top["topic"]], list(top["bytes"]), texts, colours
        )
        share = style.percent_text(first["bytes"] / total)
        style.title(
            ax,
            f"{style.short(first['topic'])} fills {share} of the {style.bytes_text(total)}"
            " that records take",
        )
        return ax


def tags(frame: Any, ax: Any = None) -> Any:
    """Draw the most frequent tags, over all topics of the frame.

    Parameters
    ----------
    frame
        Of `explore.tags`.
    ax
        Axes; None: new ones.
    """
    with style.styled():
        total = frame["messages"].sum()
        found = frame.assign(tags=frame["tags"].fillna("(no tag)"))
        found = found.groupby("tags")["messages"].sum()
        found = found.sort_values(ascending=False, kind="stable").head(_LISTED)
        ax = style.axes_or_new(ax, style.rows_height(len(found)))
        if len(found) == 0:
            return style.nothing(ax, "No messages")
        first = style.short(found.index[0])
        share = style.percent_text(found.iloc[0] / total)
        what = "have no tag" if first == "(no tag)" else f"have tag {first}"
        _ranking(ax, found, f"{share} of the messages {what}")
        return ax


def top_keys(frame: Any, ax: Any = None) -> Any:
    """Draw the most frequent keys.

    Parameters
    ----------
    frame
        Of `explore.top_keys`.
    ax
        Axes; None: new ones.
    """
    with style.styled():
        top = frame.head(_LISTED)
        ax = style.axes_or_new(ax, style.rows_height(len(top)))
        if len(top) == 0:
            return style.nothing(ax, "No message has a key")
        names = [
            f"{style.short(t, 20)}  {style.short(k, 20)}" for t, k in zip(top["topic"], top["key"])
        ]
        found = notebook_package("pandas").Series(top["messages"].to_list(), index=names)
        most = int(found.iloc[0])
        first = style.short(top["key"].iloc[0])
        missed = frame.attrs.get("missed", 0)
        text = f"Key {first} of {style.short(top['topic'].iloc[0])} occurs {most:,} times"
        if most == 1:
            text = "No key occurs twice"
        elif missed:
            text += f" or up to {missed:,} more"
        _ranking(ax, found, text)
        return ax


def _ranking(ax: Any, found: Any, text: str) -> None:
    colours = [style.ACCENT, *[style.REST] * (len(found) - 1)]
    values = found.to_list()
    labels = [style.short(name, 44) for name in found.index]
    style.bars(ax, labels, values, [style.count_text(value) for value in values], colours)
    style.title(ax, text)
