# SPDX-License-Identifier: Apache-2.0
"""A Python stream source without rows: it shows the minimum cost of a trigger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

IDLE_STREAM = "bench-idle-stream"


class IdleStream(DataSource):
    """Source that never has a row."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.readStream.format``."""
        return IDLE_STREAM

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader without rows."""
        del schema
        return _IdleReader()


class _IdleReader(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, Any]:
        return {"offset": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        del limit
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        del start, end
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        del partition
        return iter(())
