"""What each format does in its own way; Spark's classes are the same for all of them."""

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
        """Plan; no splits where one task reads the whole table."""

    @abstractmethod
    def columns(self, split: Any, names: tuple[str, ...]) -> Iterable[Columns]:
        """Return the named columns of a split; None is the whole table, or no message."""

    def push_filters(self, filters: list[Any]) -> Iterable[Any]:
        """Take Spark's filters that this read applies exactly; return the rest."""
        return filters


class StreamRead(ABC):
    """What a streaming query follows; pickled into its tasks, which only read columns."""

    reading: SourceOptions
    """The options that all formats have."""

    @property
    @abstractmethod
    def follower(self) -> Any:
        """What says where batches end; made when the driver first needs it."""

    @abstractmethod
    def offset_of(self, found: dict[str, Any]) -> Any:
        """Return an offset of the follower's."""

    @abstractmethod
    def splits(self, start: Any, end: Any) -> Sequence[Any]:
        """Plan the batch between two offsets."""

    @abstractmethod
    def columns(self, split: Any, names: tuple[str, ...]) -> Iterable[Columns]:
        """Return the named columns of a split."""

    def commit(self, end: dict[str, Any]) -> None:  # noqa: B027 (stores need nothing)
        """Take note of what Spark is done with."""

    def close(self) -> None:  # noqa: B027 (see above)
        """Close what the follower opened."""


class QueryBatch(NamedTuple):
    """A micro-batch that is written; None is what Spark does not say."""

    query: str | None
    number: int | None


class PlannedWrite(ABC):
    """A write; pickled into its tasks."""

    @abstractmethod
    def write(self, rows: Iterator[RecordBatch], partition: int, batch: QueryBatch | None) -> Any:
        """Write the rows of a partition; return the part that the driver gets."""

    @abstractmethod
    def commit(self, parts: list[Any], batch: QueryBatch | None) -> None:
        """End a write with the parts of all tasks."""

    @abstractmethod
    def abort(self, parts: list[Any]) -> None:
        """Clear away what tasks wrote before the write failed."""

    @abstractmethod
    def error(self, reason: str) -> SourceError:
        """Return an error that names the target."""
