"""How ``rocketmq-store messages`` shows the rows of its source."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.cli.output import Display, Shape, row_writer, write_record
from rmqsource.cli.read import MESSAGE_COLUMNS
from rmqsource.cli.report import progress_bars
from rmqsource.cli.row_source import FoundMessages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.cli.output import RowWriter
    from rmqsource.cli.report import ProgressBars, Report
    from rmqsource.cli.row_source import MessageChoice, RowSource

    Rows = Iterator[dict[str, Any]]

SHAPE = Shape(
    ("store_timestamp", "topic", "queue_id", "queue_offset", "message_id", "tags", "keys", "body"),
    MESSAGE_COLUMNS,
    drop=("queue_offset", "queue_id", "tags", "keys", "body", "topic"),
)


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
