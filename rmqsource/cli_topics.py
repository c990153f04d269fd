"""How ``topics`` shows who fills the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqsource.cli_output import Format, row_writer
from rmqsource.plot_style import bytes_text, duration_text
from rmqsource.topic_growth import GROWTH_COLUMNS, topic_growth
from store_core.files.store_directory import expand_paths

if TYPE_CHECKING:
    from rmqsource.cli_report import Report
    from rmqsource.options import SourceOptions

_SHOWN = (
    *("topic", "kind", "queues", "messages", "bytes", "share", "per_second", "per_day"),
    *("growth", "retention", "max_store_timestamp"),
)


def show_topics(options: SourceOptions, output: Format, report: Report) -> None:
    """Write a row for each topic; for people with units."""
    is_table = output is Format.table
    several = len(expand_paths(options.paths)) > 1
    columns = (*_SHOWN, *(["store"] if several else [])) if is_table else GROWTH_COLUMNS
    writer = row_writer(output, columns)
    for row in topic_growth(options):
        report.rows += 1
        writer.write(_for_people(row) if is_table else row)
    writer.close()


def _for_people(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "bytes": _form(row["bytes"], bytes_text),
        "share": _form(row["bytes_share"], lambda share: f"{100 * share:.1f} %"),
        "per_second": _form(row["messages_per_second"], lambda rate: f"{rate:,.3g}"),
        "per_day": _form(row["bytes_per_day"], bytes_text),
        "growth": _form(row["growth"], lambda growth: f"{100 * growth:+.0f} %"),
        "retention": _form(row["retention_seconds"], lambda s: duration_text(1000 * s)),
    }


def _form(value: Any, form: Any) -> str | None:
    return None if value is None else form(value)
