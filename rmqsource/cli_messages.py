"""How ``rocketmq-store messages`` shows the rows of one read."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from rmqsource.cli_ids import not_found, reads_of_id
from rmqsource.cli_output import Format, row_writer, write_record
from rmqsource.cli_read import (
    MESSAGE_COLUMNS,
    WrongUseError,
    read_messages,
    rows_of,
)
from rmqsource.cli_report import scan_progress
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqsource.cli_report import Report, ScanProgress
    from rmqsource.options import SourceOptions

    Rows = Iterator[dict[str, Any]]

_TABLE_COLUMNS = (
    *("store_timestamp", "topic", "queue_id", "queue_offset"),
    *("tags", "keys", "body"),
)


def show_messages(
    options: SourceOptions, ids: Sequence[str], output: Format, limit: int, report: Report
) -> None:
    """Write the messages that the options select, and that have one of the ids if there are any.

    Rows of damage go to the report, as does what was asked for and is not there.
    """
    for name in ("unique_keys", "message_ids"):
        if ids and getattr(options, name):
            raise WrongUseError("--id: is given by --option too; give one of them")
    in_full = output is Format.table and bool(ids)
    columns = _TABLE_COLUMNS if output is Format.table and not ids else MESSAGE_COLUMNS
    writer = row_writer(output, columns)
    missing: list[str] = []
    asked = set(options.topics or ())
    has_more = False
    with scan_progress() as progress:
        read = _Read(columns, progress, report)
        for row in read.of_ids(ids, options, missing) if ids else read.of(options):
            if limit and report.rows == limit:
                has_more = True
                break
            report.rows += 1
            asked.discard(row["topic"])
            if in_full or (sys.stdout.isatty() and output is not Format.table):
                progress.stop()
            if in_full:
                write_record(row)
            else:
                writer.write(row)
    writer.close()
    if has_more:
        report.note(f"there is more than these {limit}: --limit 0 shows all")
    report.nothing("no message matches")
    report.missing(*not_found(missing, options))
    report.tell_missing(options, seen=set(options.topics or ()) - asked)


class _Read:
    """Reads messages, and tells of what is no message."""

    def __init__(self, columns: tuple[str, ...], progress: ScanProgress, report: Report) -> None:
        self._columns, self._progress, self._report = columns, progress, report

    def of(self, options: SourceOptions) -> Rows:
        """Yield what the options select."""
        for batch in read_messages(options, self._columns, self._progress.splits):
            for row in rows_of(batch):
                corrupt = row.pop(CORRUPT_RECORD.name, None)
                if corrupt is not None:
                    self._report.damage(corrupt)
                else:
                    yield row

    def of_ids(self, ids: Sequence[str], options: SourceOptions, missing: list[str]) -> Rows:
        """Yield the messages of each id, every message once; note ids of which there is none."""
        shown = set()
        for text in ids:
            for kind, read in reads_of_id(text, options):
                found = 0
                for row in self.of(read):
                    found += 1
                    place = (row["store"], row["commit_log_offset"], row["queue_offset"])
                    if place not in shown:
                        shown.add(place)
                        yield row
                if found:
                    which = f"id {text!r}: " if len(ids) > 1 else ""
                    self._report.note(f"{which}found by {kind}")
                    break
            else:
                missing.append(text)
