"""The streaming reader that Spark talks to: a thin adapter over `rmqsource.stream`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from rmqsource.errors import SourceOptionError
from rmqsource.reader import as_batch
from rmqsource.scan.predicate import from_options
from rmqsource.scan.read_request import ReadRequest
from rmqsource.schema import arrow_schema
from rmqsource.spark_compat import (
    STREAM_LIMITS_SINCE,
    STREAM_READ_LIMITS,
    STREAM_READER_GETS_LIMITS,
)
from rmqsource.stream.stream_follower import StreamFollower
from rmqsource.stream.stream_offset import StreamOffset
from rmqsource.stream.stream_plan import plan_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqsource.errors import SourceError
    from rmqsource.options.source_options import SourceOptions
    from rmqsource.schema import Projection
    from rmqsource.stream.stream_plan import StreamSplit

_LIMITS = {
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "max_bytes_per_trigger": "maxBytesPerTrigger",
    "min_offsets_per_trigger": "minOffsetsPerTrigger",
}


class StreamPartition(InputPartition):
    """A partition of a batch: one split of a log, and the bounds of the batch."""

    def __init__(self, split: StreamSplit | None) -> None:
        super().__init__(split)


class StoreStreamReader(DataSourceStreamReader):
    """Follows some stores.

    Spark keeps one object for a query, in a process of the driver, and pickles another one for the
    tasks, which only `read`.
    """

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options, self._projection = options, projection
        self._predicate = from_options(_without_start(options))
        self._follower_: Any = None

    @property
    def _follower(self) -> Any:
        if self._follower_ is None:
            self._follower_ = self._new_follower()
        return self._follower_

    def _new_follower(self) -> Any:
        """Return what says where batches end; readers of other places have others."""
        return StreamFollower(self._options)

    def _offset_of(self, found: dict[str, Any]) -> Any:
        """Return an offset of that follower's."""
        return StreamOffset.from_json(found)

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch."""
        initial: dict[str, Any] = self._follower.initial.to_json()
        return initial

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the batch between two offsets."""
        first, last = StreamOffset.from_json(start), StreamOffset.from_json(end)
        splits = plan_batch(self._options, self._predicate, first, last)
        return [StreamPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of the projection."""
        from rmqsource.scan.message_reader import read_split  # noqa: PLC0415 (tasks only)

        if partition.value is None:
            return
        split: StreamSplit = partition.value
        predicate = split.predicate(self._predicate)
        request = ReadRequest.of(self._options, predicate, self._projection.columns)
        expected = arrow_schema(self._projection.spark_schema)
        for columns in read_split(split.split, request):
            yield as_batch(columns, self._projection.columns, expected)


class UnlimitedStreamReader(StoreStreamReader):
    """For Spark 4.0 and 4.1, which ask for the newest offset and say nothing of where they are."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        super().__init__(options, projection)
        self._reached: Any = None
        for field, name in _LIMITS.items():
            if getattr(options, field) is not None:
                raise SourceOptionError(
                    name,
                    f"needs Spark {STREAM_LIMITS_SINCE}; this is {pyspark.__version__}, which asks "
                    "sources for all that waits. Drop it, or use a later Spark",
                )

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as it was before 4.2
        """Return how far the stores go."""
        start = self._reached or self._follower.initial
        self._reached = self._follower.next_offset(start, limited=False)
        reached: dict[str, Any] = self._reached.to_json()
        return reached


if STREAM_READER_GETS_LIMITS:

    class LimitedStreamReader(
        StoreStreamReader,
        STREAM_READ_LIMITS.SupportsTriggerAvailableNow,  # type: ignore[misc]  # not before 4.2
    ):
        """For Spark 4.2 and later, which say where a batch starts and how much it may have."""

        def __init__(self, options: SourceOptions, projection: Projection) -> None:
            super().__init__(options, projection)
            self._idle_at: dict[str, Any] | None = None
            self._reported: dict[str, Any] | None = None

        def getDefaultReadLimit(self) -> Any:
            """Return a limit that stands for all limits of the options."""
            options = self._options
            if options.max_offsets_per_trigger is not None:
                return STREAM_READ_LIMITS.ReadMaxRows(options.max_offsets_per_trigger)
            if options.max_bytes_per_trigger is not None:
                return STREAM_READ_LIMITS.ReadMaxBytes(options.max_bytes_per_trigger)
            if options.min_offsets_per_trigger is not None:
                return STREAM_READ_LIMITS.ReadMinRows(options.min_offsets_per_trigger)
            return STREAM_READ_LIMITS.ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            """Return where the batch ends that starts there; the start when there is none."""
            if start == self._idle_at and self._follower.is_idle():
                return start
            begin = self._offset_of(start)
            limited = not isinstance(limit, STREAM_READ_LIMITS.ReadAllAvailable)
            end = self._follower.next_offset(begin, limited=limited)
            self._idle_at, self._reported = start if end is begin else None, None
            return start if end is begin else end.to_json()

        def reportLatestOffset(self) -> dict[str, Any] | None:
            """Return how far the stores go, for ``lastProgress``."""
            if self._reported is None:
                reported = self._follower.reported()
                self._reported = None if reported is None else reported.to_json()
            return self._reported

        def prepareForTriggerAvailableNow(self) -> None:
            """Let the query end with what is there now."""
            self._follower.pin_target()


STREAM_READER: Any = LimitedStreamReader if STREAM_READER_GETS_LIMITS else UnlimitedStreamReader
"""The reader for this Spark."""


def stream_reader(options: SourceOptions, projection: Projection) -> StoreStreamReader:
    """Return the reader for this Spark."""
    reader: StoreStreamReader = STREAM_READER(options, projection)
    return reader


def _without_start(options: SourceOptions) -> SourceOptions:
    """Return the options without what only the first batch asks for."""
    return replace(options, starting_timestamp_ms=None, starting_offsets=None)


class FailingStreamReader(DataSourceStreamReader):
    """Ends a query with an error when Spark asks for the first time.

    A reader that cannot be made at all makes Spark's runner stumble (4.0 to 4.3: it stops a reader
    that it does not have), and its own error hides the reason.
    """

    def __init__(self, error: SourceError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        """Raise the error."""
        raise self._error

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # as in any release
        """Raise the error."""
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        del start, end
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raise the error."""
        del partition
        raise self._error
