"""The data source ``rocketmq-store``: names, schema, and which reader Spark gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rmqsource.errors import SourceError, SourceOptionError
from rmqsource.options.source_options import parse_options, warn_of_ignored_input
from rmqsource.reader import FilteringStoreReader, StoreReader
from rmqsource.scan.store_versions import open_snapshots
from rmqsource.schema import resolve_projection, table_schema
from rmqsource.spark_compat import may_push_filters
from rmqsource.tables import CORRUPT_RECORD
from store_core.errors import StoreNotFoundError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.schema import Projection
    from rmqsource.sink.write_plan import SinkPlan
    from rmqsource.stream_writer import StoreStreamWriter
    from rmqsource.writer import StoreWriter

SOURCE_NAME = "rocketmq-store"


class RocketMQStoreDataSource(DataSource):
    """A RocketMQ broker's own files as tables; no broker is involved."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SOURCE_NAME

    def schema(self) -> StructType:
        """Return the table's schema, after a look at the options and the paths."""
        options = parse_options(self.options, streaming=None)
        warn_of_ignored_input(options)
        try:
            for snapshot in open_snapshots(options):
                snapshot.close()
        except StoreNotFoundError:
            if options.fail_on_data_loss:  # a stream may go on without a store that is gone
                raise
        return table_schema(options.table, options.mode)

    def reader(self, schema: StructType) -> StoreReader:
        """Return the reader for a schema: the table's own, or the one that the user gave."""
        parsed = replace(parse_options(self.options), working_directory=str(Path.cwd()))
        options, projection = _projected(parsed, schema)
        if schema != table_schema(options.table, options.mode):  # given: nobody asked for schema()
            warn_of_ignored_input(options)
        reader = FilteringStoreReader if may_push_filters() else StoreReader
        return reader(options, projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query, or one that raises what is wrong with it."""
        from rmqsource.stream_reader import FailingStreamReader, stream_reader  # noqa: PLC0415

        try:
            options = parse_options(self.options, streaming=True)
            return stream_reader(*_projected(options, schema))
        except SourceError as err:  # raised here, Spark's runner would hide it
            return FailingStreamReader(err)

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
        from rmqsource.sink.committing import refuse_open_store  # noqa: PLC0415
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
        plan = plan_write(options, columns)
        refuse_open_store(options.path)
        return plan


def _projected(options: SourceOptions, schema: StructType) -> tuple[SourceOptions, Projection]:
    """Return what a schema asks for, and the options with it."""
    projection = resolve_projection(options.table, options.mode, schema)
    if CORRUPT_RECORD.name not in projection.columns and options.mode == "PERMISSIVE":
        options = replace(options, mode="DROPMALFORMED")  # there is no column to show damage
    return options, projection
