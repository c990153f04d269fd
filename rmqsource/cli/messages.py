"""How ``rocketmq-store messages`` shows the rows of one read."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import pyarrow.compute as pc

from rmqsource.cli.grep import GREP_COLUMNS
from rmqsource.cli.ids import not_found, reads_of_id
from rmqsource.cli.output import Display, Shape, row_writer, write_record
from rmqsource.cli.read import (
    MESSAGE_COLUMNS,
    WrongUseError,
    read_messages,
    rows_of,
)
from rmqsource.cli.report import scan_progress
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqsource.cli.grep import Grep
    from rmqsource.cli.output import RowWriter
    from rmqsource.cli.report import Report, ScanProgress
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns

    Rows = Iterator[dict[str, Any]]

SHAPE = Shape(
    ("store_timestamp", "topic", "queue_id", "queue_offset", "message_id", "tags", "keys", "body"),
    MESSAGE_COLUMNS,
    drop=("queue_offset", "queue_id", "tags", "keys", "body", "topic"),
)
_FOLLOWED = 10
_LOOK_SECONDS = 1.0


class Wanted(NamedTuple):
    """Which of the selected messages to show."""

    ids: Sequence[str] = ()
    limit: int | None = None
    last: int | None = None
    follow: bool = False
    grep: Grep | None = None

    def check(self, options: SourceOptions) -> None:
        """Raise `WrongUseError` for what cannot go together."""
        for name in ("unique_keys", "message_ids"):
            if self.ids and getattr(options, name):
                raise WrongUseError("--id: is given by --option too; give one of them")
        for flag, other, is_both in (
            ("--last", "--id", self.last is not None and self.ids),
            ("--follow", "--id", self.follow and self.ids),
            ("--last", "--limit", self.last is not None and self.limit is not None),
            ("--follow", "--limit", self.follow and self.limit is not None),
            ("--follow", "--option snapshot", self.follow and options.snapshot),
        ):
            if is_both:
                raise WrongUseError(f"{flag}: cannot be given together with {other}; drop one")


def show_messages(
    options: SourceOptions, wanted: Wanted, display: Display, limit: int, report: Report
) -> None:
    """Write the messages that the options select, and that have one of the ids if there are any.

    Rows of damage go to the report, as does what was asked for and is not there.
    """
    wanted.check(options)
    in_full = display.is_table and bool(wanted.ids)
    shape = SHAPE._replace(shown=MESSAGE_COLUMNS) if in_full else SHAPE
    writer = row_writer(display, shape)
    if wanted.follow:
        _follow(options, wanted, writer, report)
    missing: list[str] = []
    asked = set(options.topics or ())
    has_more = False
    with scan_progress() as progress:
        read = _Read(writer.columns, progress, report, wanted.grep)
        for row in _rows(read, options, wanted, missing):
            if limit and report.rows == limit:
                has_more = True
                break
            report.rows += 1
            asked.discard(row["topic"])
            if in_full or (sys.stdout.isatty() and not display.is_table):
                progress.stop()
            if in_full:
                write_record({name: row[name] for name in MESSAGE_COLUMNS}, display)
            else:
                writer.write(row)
    writer.close()
    if has_more:
        report.note(f"there is more than these {limit}: --limit 0 shows all")
    report.nothing("no message matches")
    report.missing(*not_found(missing, options))
    report.tell_missing(options, seen=set(options.topics or ()) - asked)


def _rows(read: _Read, options: SourceOptions, wanted: Wanted, missing: list[str]) -> Rows:
    if wanted.last is not None:
        from rmqsource.cli.newest import newest  # noqa: PLC0415 (on demand)

        return iter(newest(options, wanted.last, read.of))
    return read.of_ids(wanted.ids, options, missing) if wanted.ids else read.of(options)


def _follow(options: SourceOptions, wanted: Wanted, writer: RowWriter, report: Report) -> None:
    """Show the newest messages, oldest first, and then what comes, until Ctrl-C."""
    from rmqsource.cli.newest import Follower  # noqa: PLC0415 (on demand)

    report.tell_missing(options)
    with scan_progress() as progress:
        read = _Read(writer.columns, progress, report, wanted.grep)
        follower = Follower(options, read.of, report.note)
        rows = follower.begin(_FOLLOWED if wanted.last is None else wanted.last)
    follow(follower.look, rows, writer, lambda: time.sleep(_LOOK_SECONDS))


def follow(
    look: Callable[[], list[dict[str, Any]]],
    rows: list[dict[str, Any]],
    writer: RowWriter,
    wait: Callable[[], None],
) -> None:
    """Write rows as they come; ends when ``wait`` raises."""
    while True:
        for row in rows:
            writer.write(row)
        writer.flush()
        wait()
        rows = look()


class _Read:
    """Reads messages, and tells of what is no message."""

    def __init__(
        self,
        columns: Sequence[str],
        progress: ScanProgress,
        report: Report,
        grep: Grep | None = None,
    ) -> None:
        needed = ("topic", "store_timestamp", "commit_log_offset", "queue_offset", "store")
        searched = GREP_COLUMNS if grep else ()
        self._columns = tuple(dict.fromkeys((*columns, *needed, *searched)))
        self._progress, self._report, self._grep = progress, report, grep

    def of(self, options: SourceOptions) -> Rows:
        """Yield what the options select."""
        for batch in read_messages(options, self._columns, self._progress.splits):
            for row in rows_of(self._searched(batch)):
                corrupt = row.pop(CORRUPT_RECORD.name, None)
                if corrupt is not None:
                    self._report.damage(corrupt)
                else:
                    yield row

    def _searched(self, batch: Columns) -> Columns:
        """Return the rows in which the pattern is found, and those of damage."""
        if self._grep is None:
            return batch
        keep = self._grep.mask(batch)
        damage = batch.get(CORRUPT_RECORD.name)
        if damage is not None:
            keep = pc.or_(keep, pc.is_valid(damage))
        return {name: column.filter(keep) for name, column in batch.items()}

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
