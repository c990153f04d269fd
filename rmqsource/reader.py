"""The batch reader that Spark talks to: a thin adapter over the planner and the readers.

What only tasks need is imported when they run: Spark starts a Python process for each plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from rmqsource.scan.predicate import from_options, with_filters
from rmqsource.scan.prepared_read import plan_columns, plan_read
from rmqsource.scan.read_request import ReadRequest
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.schema import arrow_schema
from store_core.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.splits import Split
    from rmqsource.schema import Projection
    from store_core.arrow_types import Columns, RecordBatch, Schema

PLAN_TABLE = "plan"
_MESSAGE_TABLES = frozenset({"messages", "keys"})


class SplitPartition(InputPartition):
    """A partition of Spark's: one split of the log, or None for a whole table of metadata."""

    def __init__(self, split: Split | None) -> None:
        super().__init__(split)


class StoreReader(DataSourceReader):
    """Reads one table of some stores."""

    def __init__(self, options: SourceOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._predicate = from_options(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan; Spark 4.0 calls this for every action, later ones once for a DataFrame."""
        if self._options.table not in _MESSAGE_TABLES:
            return [SplitPartition(None)]
        plans = plan_read(self._options, self._predicate)
        splits = [SplitPartition(split) for plan in plans for split in plan.splits]
        # Of an empty list Spark makes a partition of its own, which read() is then given.
        return splits or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Yield Arrow batches of the projection."""
        expected = arrow_schema(self._projection.spark_schema)
        for columns in self._columns(partition.value):
            yield as_batch(columns, self._projection.columns, expected)

    def _columns(self, split: Split | None) -> Iterable[Columns]:
        table = self._options.table
        if table == PLAN_TABLE:
            return [plan_columns(plan_read(self._options, self._predicate))]
        if table not in _MESSAGE_TABLES:
            return self._metadata(table)
        return [] if split is None else self._messages(split)

    def _messages(self, split: Split) -> Iterator[Columns]:
        from rmqsource.scan.message_reader import read_split  # noqa: PLC0415 (see above)

        request = ReadRequest.of(self._options, self._predicate, self._projection.columns)
        return read_split(split, request)

    def _metadata(self, table: str) -> Iterator[Columns]:
        from rmqsource.metadata import read_metadata  # noqa: PLC0415 (see above)

        for snapshot in open_snapshots(self._options):
            with snapshot:
                yield from read_metadata(table, snapshot, self._options)


class FilteringStoreReader(StoreReader):
    """A reader that takes Spark's filters; Spark refuses it unless pushdown is switched on."""

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Take what the predicate applies exactly; return the rest."""
        table = self._options.table
        self._predicate, residual = with_filters(self._predicate, filters, table)
        return residual


def as_batch(columns: Columns, names: Sequence[str], expected: Schema) -> RecordBatch:
    """Return a record batch of exactly the expected schema."""
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip((columns[name] for name in names), expected)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=expected)
