"""The data source ``rocketmq-store``: names, schema, and which reader Spark gets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from rmqsource.errors import SourceError, SourceOptionError
from rmqsource.options.source_options import parse_options
from rmqsource.reader import FilteringStoreReader, StoreReader
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.schema import resolve_projection, table_schema
from rmqsource.spark_compat import may_push_filters
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from rmqsource.sink.write_plan import SinkPlan
    from rmqsource.stream_writer import StoreStreamWriter
    from rmqsource.writer import StoreWriter

SOURCE_NAME = "rocketmq-store"


class _NoStreamReader(DataSourceStreamReader):
    """Ends a streaming query with one sentence.

    Spark asks for this offset before all else. Where there is no reader at all, its runner stumbles
    over the missing one, and its own error hides the reason.
    """

    def initialOffset(self) -> dict[str, int]:
        """Raise `SourceError`."""
        raise SourceError(
            "a store cannot be read as a stream yet; take spark.read, or follow a live store with "
            "rocketmq-store messages PATH --follow"
        )

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Give nothing; Spark comes no further than the first offset."""
        del partition
        return iter(())


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
        reader = FilteringStoreReader if may_push_filters() else StoreReader
        return reader(options, projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader that says that there is none: streams are not read."""
        del schema
        return _NoStreamReader()

    def writer(self, schema: StructType, overwrite: bool) -> StoreWriter:
        """Return the writer of a DataFrame."""
        from rmqsource.writer import StoreWriter  # noqa: PLC0415 (reading needs nothing of it)

        return StoreWriter(self._plan_write(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoreStreamWriter:
        """Return the writer of a streaming query's batch."""
        from rmqsource.stream_writer import StoreStreamWriter  # noqa: PLC0415 (see above)

        return StoreStreamWriter(self._plan_write(schema, overwrite), schema)

    def _plan_write(self, schema: StructType, overwrite: bool) -> SinkPlan:
        from rmqsource.sink.columns import resolve_sink_columns  # noqa: PLC0415 (see above)
        from rmqsource.sink.options import parse_sink_options  # noqa: PLC0415
        from rmqsource.sink.prepared_write import plan_write  # noqa: PLC0415

        options = parse_sink_options(self.options)
        if overwrite:
            raise SourceOptionError(
                "mode",
                "a store can only be appended to; write with mode append (outputMode append)",
            )
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        columns = resolve_sink_columns(fields, default_topic=options.topic)
        return plan_write(options, columns)
