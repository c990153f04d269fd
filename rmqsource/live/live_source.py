"""The data source ``rocketmq``: name, schema, and which reader or writer Spark gets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rmqsource.errors import SourceError, SourceOptionError
from rmqsource.live.live_options import parse_live_options
from rmqsource.live.live_reader import LiveReader
from rmqsource.options.source_options import warn_of_ignored_input
from rmqsource.schema import resolve_projection, table_schema
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from rmqsource.live.live_options import LiveOptions
    from rmqsource.live.live_write import LiveWritePlan
    from rmqsource.live.live_writer import LiveStreamWriter, LiveWriter
    from rmqsource.schema import Projection

SOURCE_NAME = "rocketmq"


class RocketMQDataSource(DataSource):
    """Topics of a running RocketMQ cluster."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return SOURCE_NAME

    def schema(self) -> StructType:
        """Return the table's schema, after a look at the options; no server is asked."""
        options = parse_live_options(self.options, streaming=None)
        warn_of_ignored_input(options.reading)
        return table_schema(options.table, options.reading.mode)

    def reader(self, schema: StructType) -> LiveReader:
        """Return the reader for a schema: the table's own, or the one that the user gave."""
        options, projection = _projected(parse_live_options(self.options), schema)
        if schema != table_schema(options.table, options.reading.mode):  # given: no schema() came
            warn_of_ignored_input(options.reading)
        return LiveReader(options, projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query, or one that raises what is wrong with it."""
        from rmqsource.live.live_stream_reader import LiveStreamReader  # noqa: PLC0415 (on demand)
        from rmqsource.stream_reader import FailingStreamReader  # noqa: PLC0415

        try:
            options = parse_live_options(self.options, streaming=True)
            return LiveStreamReader(*_projected(options, schema))
        except SourceError as err:  # raised here, Spark's runner would hide it
            return FailingStreamReader(err)

    def writer(self, schema: StructType, overwrite: bool) -> LiveWriter:
        """Return the writer of a DataFrame."""
        from rmqsource.live.live_writer import LiveWriter  # noqa: PLC0415 (reading needs nothing)

        return LiveWriter(self._plan_write(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> LiveStreamWriter:
        """Return the writer of a streaming query's batch."""
        from rmqsource.live.live_writer import LiveStreamWriter  # noqa: PLC0415 (see above)

        return LiveStreamWriter(self._plan_write(schema, overwrite), schema)

    def _plan_write(self, schema: StructType, overwrite: bool) -> LiveWritePlan:
        from rmqsource.live.live_options import parse_live_sink_options  # noqa: PLC0415
        from rmqsource.live.live_write import plan_live_write  # noqa: PLC0415 (see above)
        from rmqsource.sink.columns import resolve_sink_columns  # noqa: PLC0415

        options = parse_live_sink_options(self.options)
        if overwrite:
            raise SourceOptionError(
                "mode", "topics can only be appended to; write with mode append (outputMode append)"
            )
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return plan_live_write(options, resolve_sink_columns(fields, default_topic=options.topic))


def _projected(options: LiveOptions, schema: StructType) -> tuple[LiveOptions, Projection]:
    """Return what a schema asks for, and the options with it."""
    reading = options.reading
    projection = resolve_projection(options.table, reading.mode, schema)
    if CORRUPT_RECORD.name not in projection.columns and reading.mode == "PERMISSIVE":
        # There is no column to show damage.
        options = replace(options, reading=replace(reading, mode="DROPMALFORMED"))
    return options, projection
