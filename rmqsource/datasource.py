"""The data source ``rocketmq-store``: names, schema, and which reader Spark gets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rmqsource.options import parse_options
from rmqsource.reader import FilteringStoreReader, StoreReader
from rmqsource.schema import resolve_projection, table_schema
from rmqsource.spark_compat import in_pushdown_worker
from rmqsource.stores import open_snapshots
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SOURCE_NAME = "rocketmq-store"


class RocketMQStoreDataSource(DataSource):
    """A RocketMQ broker's own files as tables; no broker is involved."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SOURCE_NAME

    def schema(self) -> StructType:
        """Return the table's schema, after a look at the options and the paths."""
        options = parse_options(self.options)
        for snapshot in open_snapshots(options):
            snapshot.close()
        return table_schema(options.table, options.mode)

    def reader(self, schema: StructType) -> StoreReader:
        """Return the reader for a schema: the table's own, or the one that the user gave."""
        options = parse_options(self.options)
        projection = resolve_projection(options.table, options.mode, schema)
        if CORRUPT_RECORD.name not in projection.columns and options.mode == "PERMISSIVE":
            options = replace(options, mode="DROPMALFORMED")  # there is no column to show damage
        reader = FilteringStoreReader if in_pushdown_worker() else StoreReader
        return reader(options, projection)
