# SPDX-License-Identifier: Apache-2.0
"""The interface that each format implements; Spark's classes are the same for all formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.errors import SourceError
    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns, RecordBatch


class BatchRead(ABC):
    """A batch read; pickled into its tasks."""

    @abstractmethod
    def splits(self) -> Sequence[Any]:
        """Plan the read; no splits if one task reads the whole table."""

    @abstractmethod
    def columns(self, split: Any, names: tuple[str, ...]) -> Iterable[Columns]:
        """Return the named columns of a split; None means a whole table, or no messages."""

    def push_filters(self, filters: list[Any]) -> Iterable[Any]:
        """Take the filters of Spark that this read applies exactly; return the rest."""
        return filters


class StreamRead(ABC):
    """A streaming read; pickled into its tasks, which only read columns."""

    reading: SourceOptions
    """The options that all formats share."""

    @property
    @abstractmethod
    def follower(self) -> Any:
        """The object that decides where batches end; created when the driver first needs it."""

    @abstractmethod
    def offset_of(self, found: dict[str, Any]) -> Any:
        """Return the follower's offset from its JSON form."""

    @abstractmethod
    def splits(self, start: Any, end: Any) -> Sequence[Any]:
        """Plan the batch between two offsets."""

    @abstractmethod
    def columns(self, split: Any, names: tuple[str, ...]) -> Iterable[Columns]:
        """Return the named columns of a split."""

    def commit(self, end: dict[str, Any]) -> None:  # noqa: B027 (stores need nothing)
        """Accept that Spark has completed the batch up to an offset."""

    def close(self) -> None:  # noqa: B027 (see above)
        """Close the follower's resources."""


class QueryBatch(NamedTuple):
    """The micro-batch of a write; fields are None if Spark does not give them."""

    query: str | None
    number: int | None


class PlannedWrite(ABC):
    """A write; pickled into its tasks."""

    @abstractmethod
    def write(self, rows: Iterator[RecordBatch], partition: int, batch: QueryBatch | None) -> Any:
        """Write the rows of a partition; return the part that the driver gets."""

    @abstractmethod
    def commit(self, parts: list[Any], batch: QueryBatch | None) -> None:
        """Complete a write with the parts of all tasks."""

    @abstractmethod
    def abort(self, parts: list[Any]) -> None:
        """Remove what tasks wrote before the write failed."""

    @abstractmethod
    def error(self, reason: str) -> SourceError:
        """Return an error that names the target."""
