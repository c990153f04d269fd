# SPDX-License-Identifier: Apache-2.0
"""A Python data source that fetches bytes with pyarrow.fs and yields no rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

FETCHING = "bench-fetching"
_PIECE_BYTES = 8 << 20


class FetchingSource(DataSource):
    """Reads ranges of objects piece by piece; each task reads some of the ranges.

    Options: ``uri`` of the filesystem; ``tasks``, a JSON array with the ranges of each task as
    ``[path, start, stop]``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return FETCHING

    def schema(self) -> str:
        """Return a column that has no rows."""
        return "nothing int"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        del schema
        return _FetchingReader(self.options["uri"], json.loads(self.options["tasks"]))


class _FetchingReader(DataSourceReader):
    def __init__(self, uri: str, tasks: list[list[tuple[str, int, int]]]) -> None:
        self._uri, self._tasks = uri, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(ranges) for ranges in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyarrow.fs import FileSystem  # noqa: PLC0415 (in the worker)

        filesystem, _ = FileSystem.from_uri(self._uri)
        for path, start, stop in partition.value:
            with filesystem.open_input_file(path) as file:
                for at in range(start, stop, _PIECE_BYTES):
                    wanted = min(_PIECE_BYTES, stop - at)
                    if len(file.read_at(wanted, at)) != wanted:
                        raise ValueError(f"{path}: a short read at {at}")
        yield from ()
