"""Where the rows of a command come from: the files of stores, or a running cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.cli.read import GREP_COLUMNS, WrongUseError, rows_of
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pc

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Sequence

    from rmqsource.cli.output import Display, RowWriter, Shape
    from rmqsource.cli.read import Grep
    from rmqsource.cli.report import ProgressBars, Report
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns, Table

    Row = dict[str, Any]
    Rows = Iterator[Row]


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
