"""Where the rows of a command come from: the files of stores, or a running cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from rmqsource.cli.messages import FoundMessages, MessageChoice
    from rmqsource.cli.output import Display, RowWriter, Shape
    from rmqsource.cli.report import ProgressBars
    from store_core.arrow_types import Table

    Row = dict[str, Any]


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
