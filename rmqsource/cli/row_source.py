# SPDX-License-Identifier: Apache-2.0
"""Sources of a command's rows (stores or a cluster), and the output of messages."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from rmqsource.cli.output import Display, Shape, row_writer, write_record
from rmqsource.cli.read import GREP_COLUMNS, MESSAGE_COLUMNS, WrongUseError, rows_of
from rmqsource.cli.report import progress_bars
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pc

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from rmqsource.cli.output import RowWriter
    from rmqsource.cli.read import Grep
    from rmqsource.cli.report import ProgressBars, Report
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns, Table

    Row = dict[str, Any]
    Rows = Iterator[Row]

SHAPE = Shape(
    ("store_timestamp", "topic", "queue_id", "queue_offset", "message_id", "tags", "keys", "body"),
    MESSAGE_COLUMNS,
    drop=("queue_offset", "queue_id", "tags", "keys", "body", "topic"),
)


class RowSource(ABC):
    """A source of rows, whose options have been checked."""

    @abstractmethod
    def check(self, wanted: MessageChoice) -> None:
        """Raise `WrongUseError` for a choice that this source does not support."""

    @abstractmethod
    def messages(
        self, wanted: MessageChoice, found: FoundMessages, limit: int, progress: ProgressBars
    ) -> Generator[Row, None, None]:
        """Yield the chosen messages; report ids that have no message.

        ``limit`` is the largest number of rows that are shown; 0 for all.
        """

    @abstractmethod
    def follow(self, wanted: MessageChoice, writer: RowWriter) -> None:
        """Write messages as they come, until Ctrl-C."""

    @abstractmethod
    def table(self, name: str, shape: Shape) -> tuple[Table, Shape]:
        """Return a metadata table and its shape, which shows the store if there are several."""

    @abstractmethod
    def show_topics(self, display: Display, limit: int) -> None:
        """Write a row for each topic."""

    @abstractmethod
    def tell_missing(self, seen: Collection[str] = ()) -> None:
        """Report the requested topics and logs that are missing.

        ``seen`` are the topics of messages that were read.
        """


class MessageChoice(NamedTuple):
    """Which of the selected messages to show."""

    ids: Sequence[str] = ()
    limit: int | None = None
    last: int | None = None
    follow: bool = False
    grep: Grep | None = None

    def check(self, options: SourceOptions) -> None:
        """Raise `WrongUseError` for flags that contradict each other."""
        for name in ("unique_keys", "message_ids"):
            if self.ids and getattr(options, name):
                raise WrongUseError("--id: is also given by --option; give only one of them")
        for flag, other, is_both in (
            ("--last", "--id", self.last is not None and self.ids),
            ("--follow", "--id", self.follow and self.ids),
            ("--last", "--limit", self.last is not None and self.limit is not None),
            ("--follow", "--limit", self.follow and self.limit is not None),
            ("--follow", "--option snapshot", self.follow and options.snapshot),
        ):
            if is_both:
                raise WrongUseError(f"{flag}: cannot be given together with {other}; drop one")


class FoundMessages:
    """Rows of messages; damaged rows go to the report."""

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
        """Return the rows that match the pattern, and damaged rows."""
        if self._grep is None:
            return batch
        keep = self._grep.mask(batch)
        damage = batch.get(CORRUPT_RECORD.name)
        if damage is not None:
            keep = pc.or_(keep, pc.is_valid(damage))
        return {name: column.filter(keep) for name, column in batch.items()}


def show_messages(
    source: RowSource, wanted: MessageChoice, display: Display, limit: int, report: Report
) -> None:
    """Write the messages that a source selects, only those with one of the ids if there are any.

    Damaged rows, and requested topics or logs that are missing, go to the report.

    Raises
    ------
    WrongUseError
        The source does not support the choice.
    ClusterError
        The cluster cannot be reached, or refuses the request.
    """
    source.check(wanted)
    writer = MessageWriter(display, limit, report, in_full=bool(wanted.ids))
    if wanted.follow:
        source.follow(wanted, writer.rows)
    found = FoundMessages(writer.rows.columns, report, wanted.grep)
    with ExitStack() as stack:
        progress = stack.enter_context(progress_bars())
        rows = stack.enter_context(closing(source.messages(wanted, found, limit, progress)))
        writer.write(rows, progress)
    writer.close()
    source.tell_missing(writer.topics)


class MessageWriter:
    """Writes rows of messages up to a limit, and reports if there are more.

    Parameters
    ----------
    limit
        Most rows to write; 0 for all.
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

    def write(self, rows: Rows, progress: ProgressBars) -> None:
        """Write rows until the limit is reached."""
        for row in rows:
            if self._limit and self._report.rows == self._limit:
                self._has_more = True
                return
            self._report.rows += 1
            self.topics.add(row["topic"])
            if self._in_full or (sys.stdout.isatty() and not self._display.is_table):
                progress.hide()
            if self._in_full:
                write_record({name: row[name] for name in MESSAGE_COLUMNS}, self._display)
            else:
                self.rows.write(row)

    def close(self) -> None:
        """Write pending rows, and report if there are more, or none at all."""
        self.rows.close()
        if self._has_more:
            self._report.note(f"only the first {self._limit} rows are shown: --limit 0 shows all")
        self._report.nothing("no message matches")


def write_new_rows(
    look: Callable[[], list[dict[str, Any]]],
    rows: list[dict[str, Any]],
    writer: RowWriter,
    wait: Callable[[], None],
) -> None:
    """Write rows as they come, until ``wait`` raises."""
    while True:
        for row in rows:
            writer.write(row)
        writer.flush()
        wait()
        rows = look()
