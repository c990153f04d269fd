"""The batch reader of clusters that Spark talks to: a thin adapter over the planner and pulls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqsource.reader import as_batch
from rmqsource.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.live_read import AnySplit
    from rmqsource.schema import Projection
    from store_core.arrow_types import Columns, RecordBatch

_MESSAGES = "messages"


class LivePartition(InputPartition):
    """A partition of Spark's: parts of queues, or None for a whole table about the cluster."""

    def __init__(self, split: AnySplit | None) -> None:
        super().__init__(split)


class LiveReader(DataSourceReader):
    """Reads one table of a cluster."""

    def __init__(self, options: LiveOptions, projection: Projection) -> None:
        self._options, self._projection = options, projection

    def partitions(self) -> Sequence[InputPartition]:
        """Plan; the ends of the queues are those of now."""
        if self._options.table != _MESSAGES:
            return [LivePartition(None)]
        from rmqsource.live.live_read import plan_live_read  # noqa: PLC0415 (planning only)

        splits = [LivePartition(split) for split in plan_live_read(self._options)]
        # Of an empty list Spark makes a partition of its own, which read() is then given.
        return splits or [LivePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield Arrow batches of the projection."""
        expected = arrow_schema(self._projection.spark_schema)
        for columns in self._columns(partition):
            yield as_batch(columns, self._projection.columns, expected)

    def _columns(self, partition: InputPartition) -> Iterable[Columns]:
        from rmqsource.live.live_read import read_live_split  # noqa: PLC0415 (tasks only)

        if self._options.table != _MESSAGES:
            from rmqsource.live.live_tables import read_table  # noqa: PLC0415 (their only use)

            return read_table(self._options)
        if partition.value is None:
            return []
        return read_live_split(partition.value, self._options, self._projection.columns)
