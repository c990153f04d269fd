# SPDX-License-Identifier: Apache-2.0
"""A Python data source without rows: it shows the minimum cost of a job.

It imports nothing but pyspark: Spark starts a Python process to plan each job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

EMPTY = "bench-empty"


class EmptySource(DataSource):
    """Yields no rows from one partition; it shows the minimum cost of a job."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return EMPTY

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader without rows."""
        return _EmptyReader()


class _EmptyReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())
