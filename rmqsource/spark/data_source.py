"""The data source that Spark talks to: schema, and which reader or writer Spark gets."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource

from rmqsource.errors import SourceError, SourceOptionError
from rmqsource.options.source_options import warn_of_ignored_input
from rmqsource.schema import resolve_projection, table_schema
from rmqsource.spark.reader import FilteringReader, SparkReader
from rmqsource.spark_compat import may_push_filters
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.schema import Projection
    from rmqsource.sink.columns import SinkColumns
    from rmqsource.spark.formats import BatchRead, PlannedWrite, StreamRead
    from rmqsource.spark.writer import SparkStreamWriter, SparkWriter


class SparkSource(DataSource):
    """A format; each subclass parses its options, and plans its reads and writes."""

    target: ClassVar[str]
    """What a write appends to, as the beginning of a sentence."""

    def schema(self) -> StructType:
        """Return the table's schema, after a look at the options and the paths."""
        options = self._parse(streaming=None)
        warn_of_ignored_input(self._reading(options))
        self._check_places(options)
        return self._table_schema(options)

    def reader(self, schema: StructType) -> SparkReader:
        """Return the reader for a schema: the table's own, or the one that the user gave."""
        options, projection = self._projected(self._parse(streaming=False), schema)
        if schema != self._table_schema(options):  # given: nobody asked for schema()
            warn_of_ignored_input(self._reading(options))
        reader = FilteringReader if may_push_filters() else SparkReader
        return reader(self._read(options), projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query, or one that raises what is wrong with it."""
        from rmqsource.spark.stream_reader import STREAM_READER, FailingStreamReader  # noqa: PLC0415

        try:
            options, projection = self._projected(self._parse(streaming=True), schema)
            reader: DataSourceStreamReader = STREAM_READER(self._stream(options), projection)
        except SourceError as err:  # raised here, Spark's runner would hide it
            return FailingStreamReader(err)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> SparkWriter:
        """Return the writer of a DataFrame."""
        from rmqsource.spark.writer import SparkWriter  # noqa: PLC0415 (reading needs nothing of it)

        return SparkWriter(self._plan_write(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SparkStreamWriter:
        """Return the writer of a streaming query's batch."""
        from rmqsource.spark.writer import SparkStreamWriter  # noqa: PLC0415 (see above)

        return SparkStreamWriter(self._plan_write(schema, overwrite), schema)

    def _plan_write(self, schema: StructType, overwrite: bool) -> PlannedWrite:
        from rmqsource.sink.columns import resolve_sink_columns  # noqa: PLC0415 (see above)

        options = self._parse_write()
        if overwrite:
            raise SourceOptionError(
                "mode",
                f"{self.target} can only be appended to; write with mode append (outputMode "
                "append)",
            )
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return self._write(options, resolve_sink_columns(fields, default_topic=options.topic))

    def _projected(self, options: Any, schema: StructType) -> tuple[Any, Projection]:
        """Return what a schema asks for, and the options with it."""
        reading = self._reading(options)
        projection = resolve_projection(options.table, reading.mode, schema)
        if CORRUPT_RECORD.name not in projection.columns and reading.mode == "PERMISSIVE":
            # There is no column to show damage.
            options = self._with_reading(options, replace(reading, mode="DROPMALFORMED"))
        return options, projection

    def _table_schema(self, options: Any) -> StructType:
        return table_schema(options.table, self._reading(options).mode)

    @abstractmethod
    def _parse(self, *, streaming: bool | None) -> Any:
        """Return the options of a read; None where it is not known yet whether it is a stream."""

    @abstractmethod
    def _reading(self, options: Any) -> SourceOptions:
        """Return the options that all formats have."""

    @abstractmethod
    def _with_reading(self, options: Any, reading: SourceOptions) -> Any:
        """Return the options with others of those that all formats have."""

    def _check_places(self, options: Any) -> None:
        """Raise where what the options name cannot be read; by default nothing is looked at."""

    @abstractmethod
    def _read(self, options: Any) -> BatchRead: ...

    @abstractmethod
    def _stream(self, options: Any) -> StreamRead: ...

    @abstractmethod
    def _parse_write(self) -> Any: ...

    @abstractmethod
    def _write(self, options: Any, columns: SinkColumns) -> PlannedWrite: ...
