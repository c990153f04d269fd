# SPDX-License-Identifier: Apache-2.0
"""Output of ``trace`` and ``diff``."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from rmqsource.cli.output import Display, Shape, bold, folded, row_writer, table_width
from rmqsource.exit_codes import FOUND
from rmqsource.explore.diff_stores import DIFF_COLUMNS
from rmqsource.plots.style import duration_text
from rmqsource.safe_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqsource.cli.report import Report
    from rmqsource.explore.diff_stores import Difference
    from rmqsource.explore.trace_events import Life, TraceEvent

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIMELINE = Shape(
    ("at", "wait", "event", "place", "detail", "passed_by"),
    drop=("passed_by", "detail", "place", "at"),
)
_DIFFERENCES = Shape(
    DIFF_COLUMNS,
    drop=("other_store", "in_store", "other_message_id", "queue_offset", "queue_id", "message_id"),
)
TRACE_COLUMNS = (
    *("life", "unique_key", "keys", "tags", "sent_to", "state", "at", "wait_ms", "event"),
    *("topic", "queue_id", "queue_offset", "commit_log_offset", "message_id", "detail"),
    *("passed_by", "ahead_of", "store"),
)
"""Columns of an event as JSON or CSV."""


def show_lives(lives: Sequence[Life], display: Display, report: Report) -> None:
    """Write lives: in a table a heading and a timeline for each, else one row per event."""
    if not display.is_table:
        writer = row_writer(display, TRACE_COLUMNS)
        for number, life in enumerate(lives, 1):
            for event in life.events:
                report.rows += 1
                writer.write(_exact_row(number, life, event))
        writer.close()
        return
    for life in lives:
        report.rows += 1
        print(*map(bold, folded(_heading(life), table_width(display))), sep="\n")
        writer = row_writer(display, _TIMELINE)
        for row in _timeline(life):
            writer.write(row)
        writer.close()
        print()


def _heading(life: Life) -> str:
    parts = [life.unique_key or "(no unique key)", f"topic {life.topic}"]
    parts += [f"keys {' '.join(life.keys)}"] if life.keys else []
    parts += [f"tags {life.tags}"] if life.tags else []
    state = life.state.replace("_", " ")
    return printable(", ".join([*parts, f"{state} after {duration_text(life.took_ms)}"]))


def _timeline(life: Life) -> Iterator[dict[str, Any]]:
    for event in life.events:
        place = event.topic
        if event.queue_id is not None:
            place += f"/{event.queue_id} @{event.queue_offset}"
        yield {
            "at": _moment(event.at_ms),
            "wait": "" if event.wait_ms is None else f"+{duration_text(event.wait_ms)}",
            "event": event.event.replace("_", " "),
            "place": place,
            "detail": event.detail,
            "passed_by": list(event.passed_by),
        }


def _exact_row(number: int, life: Life, event: TraceEvent) -> dict[str, Any]:
    values = {
        "life": number,
        "unique_key": life.unique_key,
        "keys": list(life.keys),
        "tags": life.tags,
        "sent_to": life.topic,
        "state": life.state,
        "at": _moment(event.at_ms),
        "passed_by": list(event.passed_by),
        "ahead_of": list(event.ahead_of),
        "store": list(event.store),
    }
    return {name: values.get(name, getattr(event, name, None)) for name in TRACE_COLUMNS}


def _moment(milliseconds: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def show_differences(found: Difference, display: Display, limit: int, report: Report) -> None:
    """Write the differences, and their number on standard error."""
    for text in found.damage:
        report.damage(text)
    report.rows = found.messages_a + found.messages_b
    writer = row_writer(display, _DIFFERENCES)
    for row in found.rows[: limit or None]:
        writer.write(row)
    writer.close()
    report.note(
        f"A has {found.messages_a:,} messages, B {found.messages_b:,}; {found.same:,} are the same"
    )
    if found.rows:
        counts = {row["difference"]: 0 for row in found.rows}
        for row in found.rows:
            counts[row["difference"]] += 1
        report.note(", ".join(f"{count:,} {kind}" for kind, count in counts.items()))
        if limit and len(found.rows) > limit:
            report.note(f"only the first {limit} rows are shown: --limit 0 shows all")
        report.end_with(FOUND)
    report.nothing("no message matches: nothing was compared")
