# SPDX-License-Identifier: Apache-2.0
"""The data source that Spark calls: the schema, and the reader or writer to use."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, ClassVar

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
    """A format; each subclass defines how to parse its options and plan its reads and writes."""

    parse: ClassVar[Callable[..., Any]]
    read: ClassVar[Callable[..., BatchRead]]
    stream: ClassVar[Callable[..., StreamRead]]
    target: ClassVar[str]
    """Target of writes, as the beginning of a sentence."""

    def schema(self) -> StructType:
        """Check the options and the paths, and return the table's schema."""
        options = self.parse(self.options, streaming=None)
        warn_of_ignored_input(self._reading(options))
        self._check_paths(options)
        return self._table_schema(options)

    def reader(self, schema: StructType) -> SparkReader:
        """Return the reader for a schema: the table's own, or the one given by the user."""
        options, projection = self._projected(self.parse(self.options), schema)
        if schema != self._table_schema(options):  # the user gave it: Spark did not call schema()
            warn_of_ignored_input(self._reading(options))
        reader = FilteringReader if may_push_filters() else SparkReader
        return reader(self.read(options), projection)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query; for wrong options, one that raises the error."""
        from rmqsource.spark.stream_reader import STREAM_READER, FailingStreamReader  # noqa: PLC0415

        try:
            options, projection = self._projected(self.parse(self.options, streaming=True), schema)
            reader: DataSourceStreamReader = STREAM_READER(self.stream(options), projection)
        except SourceError as err:  # raised here, Spark's runner would hide it
            return FailingStreamReader(err)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> SparkWriter:
        """Return the writer of a DataFrame."""
        from rmqsource.spark.writer import SparkWriter  # noqa: PLC0415 (reading needs nothing of it)

        return SparkWriter(self._planned(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> SparkStreamWriter:
        """Return the writer of a streaming query's batch."""
        from rmqsource.spark.writer import SparkStreamWriter  # noqa: PLC0415 (see above)

        return SparkStreamWriter(self._planned(schema, overwrite), schema)

    def _planned(self, schema: StructType, overwrite: bool) -> PlannedWrite:
        from rmqsource.sink.columns import resolve_sink_columns  # noqa: PLC0415 (see above)

        options = self._parse_write()
        if overwrite:
            how = "write with mode append (outputMode append)"
            raise SourceOptionError("mode", f"{self.target} can only be appended to; {how}")
        fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        columns = resolve_sink_columns(fields, default_topic=options.topic)
        return self._plan_write(options, columns)

    def _projected(self, options: Any, schema: StructType) -> tuple[Any, Projection]:
        """Return the options adapted to the schema, and the schema's projection."""
        mode = self._reading(options).mode
        projection = resolve_projection(options.table, mode, schema)
        if CORRUPT_RECORD.name not in projection.columns and mode == "PERMISSIVE":
            options = self._with_mode(options, "DROPMALFORMED")  # no column can show damage
        return options, projection

    def _table_schema(self, options: Any) -> StructType:
        return table_schema(options.table, self._reading(options).mode)

    def _reading(self, options: Any) -> SourceOptions:
        """Return the options that all formats share; a format may have others as well."""
        reading: SourceOptions = options
        return reading

    def _with_mode(self, options: Any, mode: str) -> Any:
        return replace(options, mode=mode)

    def _check_paths(self, options: Any) -> None:
        """Raise if a path cannot be read; does nothing for formats without paths."""

    @abstractmethod
    def _parse_write(self) -> Any: ...

    @abstractmethod
    def _plan_write(self, options: Any, columns: SinkColumns) -> PlannedWrite: ...
