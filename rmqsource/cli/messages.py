"""How ``rocketmq-store messages`` shows the rows of one read."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

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
from store_core.arrow import pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
    writer = MessageWriter(display, limit, report, in_full=bool(wanted.ids))
    if wanted.follow:
        _follow(options, wanted, writer.rows, report)
    missing: list[str] = []
    with scan_progress() as progress:
        read = _Read(writer.rows.columns, progress, report, wanted.grep)
        writer.write(_rows(read, options, wanted, missing), progress)
    writer.close()
    report.missing(*not_found(missing, options))
    report.tell_missing(options, seen=set(options.topics or ()) & writer.topics)


class MessageWriter:
    """Writes rows of messages, so many at most, and tells of what is left out.

    Parameters
    ----------
    display
        How.
    limit
        Most rows; 0: all.
    report
        Counts them.
    in_full
        A table has a line for each column: they were asked for one by one.
    """

    def __init__(
        self, display: Display, limit: int, report: Report, *, in_full: bool = False
    ) -> None:
        self._display, self._limit, self._report = display, limit, report
        self._in_full = display.is_table and in_full
        shape = SHAPE._replace(shown=MESSAGE_COLUMNS) if self._in_full else SHAPE
        self.rows = row_writer(display, shape)
        self.topics: set[str] = set()
        self._has_more = False

    def write(self, rows: Rows, progress: ScanProgress) -> None:
        """Write rows until there are enough."""
        for row in rows:
            if self._limit and self._report.rows == self._limit:
                self._has_more = True
                return
            self._report.rows += 1
            self.topics.add(row["topic"])
            if self._in_full or (sys.stdout.isatty() and not self._display.is_table):
                progress.stop()
            if self._in_full:
                write_record({name: row[name] for name in MESSAGE_COLUMNS}, self._display)
            else:
                self.rows.write(row)

    def close(self) -> None:
        """Write what was held back, and say if that is not all, or nothing."""
        self.rows.close()
        if self._has_more:
            self._report.note(f"there is more than these {self._limit}: --limit 0 shows all")
        self._report.nothing("no message matches")


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


class FoundMessages:
    """Rows of what was read, without what is no message: that is told.

    Attributes
    ----------
    columns
        Those to read: to be shown, to be ordered by, to be searched.
    """

    def __init__(self, columns: Sequence[str], report: Report, grep: Grep | None = None) -> None:
        needed = ("topic", "store_timestamp", "commit_log_offset", "queue_offset", "store")
        searched = GREP_COLUMNS if grep else ()
        self.columns = tuple(dict.fromkeys((*columns, *needed, *searched)))
        self._report, self._grep = report, grep

    def rows(self, batches: Iterable[Columns]) -> Rows:
        """Yield the messages of batches."""
        for batch in batches:
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


class _Read(FoundMessages):
    """Reads messages of files."""

    def __init__(
        self,
        columns: Sequence[str],
        progress: ScanProgress,
        report: Report,
        grep: Grep | None = None,
    ) -> None:
        super().__init__(columns, report, grep)
        self._progress = progress

    def of(self, options: SourceOptions) -> Rows:
        """Yield what the options select."""
        return self.rows(read_messages(options, self.columns, self._progress.splits))

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
