# SPDX-License-Identifier: Apache-2.0
"""Rankings of the largest or most frequent topics, tags and keys: their bars and plots."""

from __future__ import annotations

from typing import Any

from rmqsource.plots import style
from rmqsource.plots.bars import LISTED, Bar, Bars, draw
from store_core.topics import NORMAL

_NO_TAG = "(no tag)"


def bytes_by_topic(frame: Any, ax: Any = None) -> Any:
    """Draw the bytes of the largest topics, and their growth per day.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        return draw(bars_of_topics(frame), ax)


def bars_of_topics(frame: Any) -> Bars:
    """Return the bars of `bytes_by_topic`; unknown rates are left out."""
    held = frame[frame["bytes"].astype("float64").fillna(0) > 0]
    held = held.assign(bytes_per_day=held["bytes_per_day"].astype("float64"))
    by_topic = held.groupby("topic", as_index=False)[["bytes", "bytes_per_day"]]
    held = by_topic.sum(min_count=1).sort_values(["bytes", "topic"], ascending=[False, True])
    if len(held) == 0:
        return Bars("No topic holds a message")
    top = held.head(LISTED)
    rows = tuple(
        Bar((row.topic,), row.bytes, _bytes_text(row.bytes, row.bytes_per_day), place == 0)
        for place, row in enumerate(top.itertuples())
    )
    total = held["bytes"].sum()
    share = style.percent_text(rows[0].value / total)
    of = f"{style.bytes_text(total)} taken up by records"
    return Bars(f"{style.short(rows[0].label[0])} fills {share} of the {of}", rows)


def _bytes_text(size: float, rate: float) -> str:
    by_day = f"   ({style.bytes_text(rate)} a day)" if rate > 0 else ""  # NaN if unknown
    return f"{style.bytes_text(size)}{by_day}"


def tags(frame: Any, ax: Any = None) -> Any:
    """Draw the most frequent tags in topics of applications.

    Parameters
    ----------
    frame
        From `explore.tags`; the broker's own topics, which contain copies, are left out.
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        return draw(bars_of_tags(frame), ax)


def bars_of_tags(frame: Any) -> Bars:
    """Return the bars of `tags`; none if no message has a tag."""
    frame = frame[frame["kind"] == NORMAL]
    total = frame["messages"].sum()
    if total == 0:
        return Bars("No messages")
    if frame["tags"].isna().all():
        return Bars("No message has a tag")
    found = frame.assign(tags=frame["tags"].fillna(_NO_TAG)).groupby("tags")["messages"].sum()
    found = found.sort_values(ascending=False, kind="stable").head(LISTED)
    share = style.percent_text(found.iloc[0] / total)
    first = style.short(found.index[0])
    what = "have no tag" if first == _NO_TAG else f"have tag {first}"
    return Bars(f"{share} of the messages {what}", _counted([(t,) for t in found.index], found))


def top_keys(frame: Any, ax: Any = None) -> Any:
    """Draw the most frequent keys.

    Parameters
    ----------
    ax
        Axes to draw into; new ones if None.
    """
    with style.styled():
        return draw(bars_of_keys(frame), ax)


def bars_of_keys(frame: Any) -> Bars:
    """Return the bars of `top_keys`; none if every key occurs once."""
    top = frame.head(LISTED)
    missed = frame.attrs.get("missed", 0)
    if len(top) == 0:
        return Bars("No message has a key")
    most = int(top["messages"].iloc[0])
    if most == 1:
        return Bars(
            f"No key occurs more than {1 + missed:,} times" if missed else "No key occurs twice"
        )
    more = f" or up to {missed:,} more" if missed else ""
    where = f"{style.short(top['key'].iloc[0])} of {style.short(top['topic'].iloc[0])}"
    rows = _counted(list(zip(top["topic"], top["key"])), top["messages"])
    return Bars(f"Key {where} occurs {most:,} times{more}", rows)


def _counted(labels: list[tuple[str, ...]], counts: Any) -> tuple[Bar, ...]:
    return tuple(
        Bar(label, count, style.count_text(count), place == 0)
        for place, (label, count) in enumerate(zip(labels, counts.to_list()))
    )
