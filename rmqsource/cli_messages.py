"""How ``rocketmq-store messages`` shows the rows of one read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rmqsource.cli_output import Format, row_writer, write_record
from rmqsource.cli_read import MESSAGE_COLUMNS, read_messages, rows_of
from rmqsource.cli_report import scan_progress
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.cli_report import Report
    from rmqsource.options import SourceOptions

_TABLE_COLUMNS = (
    *("store_timestamp", "topic", "queue_id", "queue_offset"),
    *("tags", "keys", "body"),
)


def show_messages(
    options: SourceOptions, output: Format, limit: int, report: Report, *, in_full: bool
) -> None:
    """Write the messages of one read; rows of damage go to the report."""
    in_table = output is Format.table
    columns = _TABLE_COLUMNS if in_table and not in_full else MESSAGE_COLUMNS
    writer: Any = None
    with scan_progress() as progress:
        for row in _messages(options, columns, progress.splits, report):
            if limit and report.rows == limit:
                progress.stop()
                if writer is not None:
                    writer.close()
                report.note(f"there is more than these {limit}: --limit 0 shows all")
                return
            report.rows += 1
            if in_table and in_full:
                progress.stop()
                write_record(row)
                continue
            if sys.stdout.isatty() and not in_table:
                progress.stop()
            writer = writer or row_writer(output, columns)
            writer.write(row)
    if writer is not None:
        writer.close()


def _messages(
    options: SourceOptions, columns: tuple[str, ...], progress: Any, report: Report
) -> Iterator[dict[str, Any]]:
    for batch in read_messages(options, columns, progress):
        for row in rows_of(batch):
            corrupt = row.pop(CORRUPT_RECORD.name, None)
            if corrupt is not None:
                report.damage(corrupt)
            else:
                yield row
