"""Where the rows of a command come from, stores or a cluster, and how messages are shown."""

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
    """What a command reads, after its options were checked."""

    @abstractmethod
    def check(self, wanted: MessageChoice) -> None:
        """Raise `WrongUseError` for messages that this source cannot give."""

    @abstractmethod
    def messages(
        self, wanted: MessageChoice, found: FoundMessages, limit: int, progress: ProgressBars
    ) -> Generator[Row, None, None]:
        """Yield the messages that are wanted; say which ids there are none of.

        ``limit`` is how many rows are shown at most; 0 is all of them.
        """

    @abstractmethod
    def follow(self, wanted: MessageChoice, writer: RowWriter) -> None:
        """Write messages as they come, until Ctrl-C."""

    @abstractmethod
    def table(self, name: str, shape: Shape) -> tuple[Table, Shape]:
        """Return a table of metadata, and its shape, with the store where there are several."""

    @abstractmethod
    def show_topics(self, display: Display, limit: int) -> None:
        """Write a row for each topic."""

    @abstractmethod
    def tell_missing(self, seen: Collection[str] = ()) -> None:
        """Report the topics and logs that were asked for and are not there.

        ``seen`` are the topics of messages that were found.
        """


class MessageChoice(NamedTuple):
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


class FoundMessages:
    """Rows of messages; rows of damage go to the report."""

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


def show_messages(
    source: RowSource, wanted: MessageChoice, display: Display, limit: int, report: Report
) -> None:
    """Write the messages that a source selects, and that have one of the ids if there are any.

    Rows of damage go to the report, as does what was asked for and is not there.

    Raises
    ------
    WrongUseError
        The source cannot give what is wanted.
    ClusterError
        The cluster cannot be reached, or refuses.
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
    """Writes rows of messages, so many at most, and tells of what is left out.

    Parameters
    ----------
    limit
        Most rows; 0: all.
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
        """Write rows until there are enough."""
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
        """Write what was held back, and say if that is not all, or nothing."""
        self.rows.close()
        if self._has_more:
            self._report.note(f"there is more than these {self._limit}: --limit 0 shows all")
        self._report.nothing("no message matches")


def write_new_rows(
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
