# SPDX-License-Identifier: Apache-2.0
"""The batch reader that Spark calls; it gets splits and columns from the format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqsource.spark_compat import to_arrow_schema
from store_core.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.schema import Projection
    from rmqsource.spark.formats import BatchRead
    from store_core.arrow_types import Columns, RecordBatch, Schema


class SplitPartition(InputPartition):
    """A partition of a Spark read: one split, or None for a whole table."""


class SparkReader(DataSourceReader):
    """Reads one table."""

    def __init__(self, read: BatchRead, projection: Projection) -> None:
        self._read, self._projection = read, projection

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read; Spark 4.0 calls this for every action, later ones once per DataFrame."""
        # For an empty list Spark would pass a partition of its own to read().
        return [SplitPartition(split) for split in self._read.splits() or [None]]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield Arrow batches of the projection."""
        columns = self._read.columns(partition.value, self._projection.columns)
        yield from projected(columns, self._projection)


class FilteringReader(SparkReader):
    """A reader that takes Spark's filters; Spark refuses it unless pushdown is enabled."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take the filters that the read applies exactly; return the rest."""
        return self._read.push_filters(filters)


def projected(parts: Iterable[Columns], projection: Projection) -> Iterator[RecordBatch]:
    """Yield record batches with exactly the schema that Spark expects."""
    expected = to_arrow_schema(projection.spark_schema)
    for columns in parts:
        yield _as_batch(columns, projection.columns, expected)


def _as_batch(columns: Columns, names: Sequence[str], expected: Schema) -> RecordBatch:
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip((columns[name] for name in names), expected)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=expected)
