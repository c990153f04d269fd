# SPDX-License-Identifier: Apache-2.0
"""A Python stream source with one ready row per batch, stamped when the batch is built."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

READY_STREAM = "bench-ready-stream"

_ready: dict[str, Any] = {}
"""Rows of this worker process, by schema."""


class ReadyStream(DataSource):
    """One row a batch; its body is the monotonic time in ns, which all processes share on Linux."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return READY_STREAM

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for the schema given by ``.schema()``."""
        return _ReadyStreamReader(schema)


class _ReadyStreamReader(DataSourceStreamReader):
    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def initialOffset(self) -> dict[str, Any]:
        return {"stamp": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        del start, limit
        return {"stamp": time.monotonic_ns()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        del start
        return [InputPartition(end["stamp"])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 (tasks only)

        from bench.ready_columns import ready_batch  # noqa: PLC0415

        key = self._schema.json()
        if key not in _ready:
            _ready[key] = ready_batch(self._schema, 1, 100)
        schema, columns = _ready[key].schema, list(_ready[key].columns)
        stamp = str(partition.value).encode()
        columns[schema.get_field_index("body")] = pa.array([stamp], pa.binary())
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
