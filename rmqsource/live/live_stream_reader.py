"""The streaming reader of clusters that Spark talks to: a thin adapter over the follower."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqsource.live.live_follower import LiveFollower, Start
from rmqsource.live.live_offset import LiveOffset
from rmqsource.live.live_read import read_live_split, split_ranges
from rmqsource.live.live_reader import LivePartition
from rmqsource.reader import as_batch
from rmqsource.schema import arrow_schema
from rmqsource.spark_compat import STREAM_READER_GETS_LIMITS
from rmqsource.stream_reader import STREAM_READER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import InputPartition

    from rmqsource.live.live_options import LiveOptions
    from rmqsource.schema import Projection


class LiveStreamReader(STREAM_READER):  # type: ignore[misc]  # differs between releases
    """Follows topics of a cluster.

    Spark keeps one object for a query, in a process of the driver, and pickles another one for the
    tasks, which only `read`.
    """

    def __init__(self, options: LiveOptions, projection: Projection) -> None:
        super().__init__(options.reading, projection)
        self._live = options

    def _new_follower(self) -> LiveFollower:
        # To Spark that tells no start, each start of a query looks like the first.
        is_told = STREAM_READER_GETS_LIMITS
        return LiveFollower(self._live, start=Start.ALL_IF_BOUNDED if is_told else Start.ALL)

    def _offset_of(self, found: dict[str, Any]) -> LiveOffset:
        return LiveOffset.from_json(found)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the batch between two offsets."""
        first, last = LiveOffset.from_json(start), LiveOffset.from_json(end)
        splits = split_ranges(self._live, self._follower.ranges(first, last))
        return [LivePartition(split) for split in splits] or [LivePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield Arrow batches of the projection."""
        if partition.value is None:
            return
        reading = replace(self._live.reading, starting_timestamp_ms=None, starting_offsets=None)
        options = replace(self._live, reading=reading)
        expected = arrow_schema(self._projection.spark_schema)
        for columns in read_live_split(partition.value, options, self._projection.columns):
            yield as_batch(columns, self._projection.columns, expected)

    def commit(self, end: dict[str, Any]) -> None:
        """Have brokers note what Spark is done with, if ``commitOffsets`` asks for it."""
        if self._live.commit_offsets:
            self._follower.commit(LiveOffset.from_json(end))

    def stop(self) -> None:
        """Close the connections."""
        self._follower.close()
