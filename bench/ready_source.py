# SPDX-License-Identifier: Apache-2.0
"""A Python data source that hands over ready-made batches: it shows the cost of Spark itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.ready_columns import ready_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

READY = "bench-ready"

_ready: dict[tuple[str, int, int], Any] = {}
"""Batches of this worker process; warm runs find them because Spark reuses workers."""


class ReadySource(DataSource):
    """Hands over one ready-made batch again and again.

    Options: ``rows`` in all, ``partitions``, ``rowsPerBatch``, ``bodyBytes``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return READY

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for the schema given by ``.schema()``."""
        options = {name.lower(): int(value) for name, value in self.options.items()}
        return _ReadyReader(schema, options)


class _ReadyReader(DataSourceReader):
    def __init__(self, schema: StructType, options: dict[str, int]) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> list[InputPartition]:
        rows, count = self._options["rows"], self._options["partitions"]
        bounds = [rows * number // count for number in range(count + 1)]
        return [InputPartition(stop - start) for start, stop in zip(bounds, bounds[1:])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        count = self._options["rowsperbatch"]
        body_bytes = self._options["bodybytes"]
        key = (self._schema.json(), count, body_bytes)
        if key not in _ready:
            _ready[key] = ready_batch(self._schema, count, body_bytes)
        rest = int(partition.value)
        while rest > 0:
            yield _ready[key] if rest >= count else _ready[key].slice(0, rest)
            rest -= count
