"""How ``topics`` shows who fills the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqsource.cli.metadata import for_stores, in_bytes
from rmqsource.cli.output import Form, Shape, row_writer
from rmqsource.explore.topic_growth import GROWTH_COLUMNS, topic_growth
from rmqsource.plots.style import duration_text

if TYPE_CHECKING:
    from rmqsource.cli.output import Display
    from rmqsource.cli.report import Report
    from rmqsource.options.source_options import SourceOptions

_HOUR_SECONDS = 3600
_RATES_OF_DAYS = ("bytes_per_day", "growth")
_SHAPE = Shape(
    (
        *("topic", "kind", "queues", "messages", "bytes", "bytes_share", "messages_per_second"),
        *("bytes_per_day", "growth", "retention_seconds", "max_store_timestamp"),
    ),
    GROWTH_COLUMNS,
    drop=(
        *("store", "kind", "queues", "max_store_timestamp", "growth", "retention_seconds"),
        *("messages_per_second", "bytes_per_day", "bytes_share"),
    ),
    forms={
        "bytes": in_bytes("bytes"),
        "bytes_share": Form("share", lambda share: f"{100 * share:.1f} %"),
        "messages_per_second": Form("per_second", lambda rate: f"{rate:,.3g}"),
        "bytes_per_day": in_bytes("per_day"),
        "growth": Form("growth", lambda growth: f"{100 * growth:+.0f} %"),
        "retention_seconds": Form("retention", lambda s: duration_text(1000 * s)),
    },
)


def show_topics(options: SourceOptions, display: Display, limit: int, report: Report) -> None:
    """Write a row for each topic; for people with units."""
    shape = for_stores(_SHAPE, options)
    shape.chosen(display)  # tells of a wrong column before anything is read
    found = list(topic_growth(options))
    span, rows = _span_seconds(found), found[: limit or None]
    is_short = display.is_table and not display.columns and span < _HOUR_SECONDS
    if is_short:
        shape = shape._replace(shown=tuple(n for n in shape.shown if n not in _RATES_OF_DAYS))
    writer = row_writer(display, shape)
    for row in rows:
        writer.write(row)
    writer.close()
    report.rows = len(rows)
    if rows and is_short:
        report.note(
            f"these messages are of {duration_text(1000 * span)}: what that makes a day, and "
            "growth, say nothing yet (--columns shows them)"
        )


def _span_seconds(rows: list[dict[str, Any]]) -> float:
    """Return the time from the first to the last message of all topics."""
    begins = [row["min_store_timestamp"] for row in rows if row["min_store_timestamp"]]
    ends = [row["max_store_timestamp"] for row in rows if row["max_store_timestamp"]]
    return (max(ends) - min(begins)).total_seconds() if begins and ends else 0.0
