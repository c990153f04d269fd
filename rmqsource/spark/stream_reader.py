# SPDX-License-Identifier: Apache-2.0
"""The streaming reader that Spark calls; it gets offsets, splits and columns from the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader

from rmqsource.errors import SourceOptionError
from rmqsource.spark.reader import SplitPartition, projected
from rmqsource.spark_compat import (
    STREAM_LIMITS_SINCE,
    STREAM_READ_LIMITS,
    STREAM_READER_GETS_LIMITS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from rmqsource.errors import SourceError
    from rmqsource.schema import Projection
    from rmqsource.spark.formats import StreamRead

_LIMITS = {
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "max_bytes_per_trigger": "maxBytesPerTrigger",
    "min_offsets_per_trigger": "minOffsetsPerTrigger",
}


class SparkStreamReader(DataSourceStreamReader):
    """Follows the stores or topics of a format.

    Spark has one object for a query, in a process of the driver, and pickles another for the tasks,
    which only `read`.
    """

    def __init__(self, stream: StreamRead, projection: Projection) -> None:
        self._stream, self._projection = stream, projection

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first batch."""
        initial: dict[str, Any] = self._stream.follower.initial.to_json()
        return initial

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the batch between two offsets."""
        first, last = self._stream.offset_of(start), self._stream.offset_of(end)
        return [SplitPartition(split) for split in self._stream.splits(first, last)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of the projection."""
        if partition.value is not None:
            columns = self._stream.columns(partition.value, self._projection.columns)
            yield from projected(columns, self._projection)

    def commit(self, end: dict[str, Any]) -> None:
        """Accept that Spark has completed the batch up to an offset."""
        self._stream.commit(end)

    def stop(self) -> None:
        """Close the follower."""
        self._stream.close()


class UnlimitedStreamReader(SparkStreamReader):
    """For Spark 4.0 and 4.1, which ask for the newest offset without passing the current one."""

    def __init__(self, stream: StreamRead, projection: Projection) -> None:
        super().__init__(stream, projection)
        self._reached: Any = None
        for field, name in _LIMITS.items():
            if getattr(stream.reading, field) is not None:
                raise SourceOptionError(
                    name,
                    f"requires Spark {STREAM_LIMITS_SINCE}; this is {pyspark.__version__}, "
                    "which asks sources for all waiting messages. Drop it, or update Spark",
                )

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as it was before 4.2
        """Return how far the stores go."""
        start = self._reached or self._stream.follower.initial
        self._reached = self._stream.follower.next_offset(start, limited=False)
        reached: dict[str, Any] = self._reached.to_json()
        return reached


if STREAM_READER_GETS_LIMITS:

    class LimitedStreamReader(
        SparkStreamReader,
        STREAM_READ_LIMITS.SupportsTriggerAvailableNow,  # type: ignore[misc]  # not before 4.2
    ):
        """For Spark 4.2 and later, which say where a batch starts and how much it may have."""

        def __init__(self, stream: StreamRead, projection: Projection) -> None:
            super().__init__(stream, projection)
            self._idle_at: dict[str, Any] | None = None
            self._reported: dict[str, Any] | None = None

        def getDefaultReadLimit(self) -> Any:
            """Return a limit that represents all limits of the options."""
            options = self._stream.reading
            if options.max_offsets_per_trigger is not None:
                return STREAM_READ_LIMITS.ReadMaxRows(options.max_offsets_per_trigger)
            if options.max_bytes_per_trigger is not None:
                return STREAM_READ_LIMITS.ReadMaxBytes(options.max_bytes_per_trigger)
            if options.min_offsets_per_trigger is not None:
                return STREAM_READ_LIMITS.ReadMinRows(options.min_offsets_per_trigger)
            return STREAM_READ_LIMITS.ReadAllAvailable()

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
            """Return the end of the batch that begins at ``start``; ``start`` if there is none."""
            if start == self._idle_at and self._stream.follower.is_idle():
                return start
            begin = self._stream.offset_of(start)
            limited = not isinstance(limit, STREAM_READ_LIMITS.ReadAllAvailable)
            end = self._stream.follower.next_offset(begin, limited=limited)
            self._idle_at, self._reported = start if end is begin else None, None
            return start if end is begin else end.to_json()

        def reportLatestOffset(self) -> dict[str, Any] | None:
            """Return how far the stores go, for ``lastProgress``."""
            if self._reported is None:
                reported = self._stream.follower.reported()
                self._reported = None if reported is None else reported.to_json()
            return self._reported

        def prepareForTriggerAvailableNow(self) -> None:
            """Let the query end where the stores or queues end now."""
            self._stream.follower.pin_target()


STREAM_READER: Any = LimitedStreamReader if STREAM_READER_GETS_LIMITS else UnlimitedStreamReader
"""The reader for this Spark."""


class FailingStreamReader(DataSourceStreamReader):
    """Fails a query with an error at Spark's first call.

    If creating the reader raises, Spark's runner (4.0 to 4.3) tries to stop a reader that it does
    not have, and its own error hides the reason.
    """

    def __init__(self, error: SourceError) -> None:
        self._error = error

    def _fail(self, *_: Any) -> Any:
        raise self._error

    initialOffset = latestOffset = partitions = read = _fail  # type: ignore[assignment]
