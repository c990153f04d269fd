"""The columns of a batch from Spark, in the types that the sink works with."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rmqsource.sink.bodies import raw_rows
from store_core.arrow import pa, pc

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.sink.columns import SinkColumns
    from store_core.arrow_types import Array, DataType, RecordBatch

    Bools = npt.NDArray[np.bool_]

_TICKS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_TEXT = pa.string()
_WORDS = pa.list_(pa.string())
_MAP = pa.map_(pa.string(), pa.string())


class SourceColumns:
    """Columns of one batch by canonical name; None where a column is not there."""

    def __init__(self, batch: RecordBatch, columns: SinkColumns, default_topic: str | None) -> None:
        self.batch = batch
        self._columns = columns
        self.topic = self._topic(default_topic)
        self.body = self._typed("body", pa.binary())
        self.keys = self._keys()
        self.tags, self.unique_key = self._typed("tags", _TEXT), self._typed("unique_key", _TEXT)
        self.sharding_key = self._typed("sharding_key", _TEXT)
        self.properties = self._typed("properties", _MAP)
        self.properties_raw = self._typed("properties_raw", pa.binary())
        self.born_host = self._typed("born_host", _TEXT)
        self.body_crc = self._typed("body_crc", pa.int32())

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @cached_property
    def coded_topic(self) -> Array:
        """Return the topics as a dictionary array."""
        return self.topic.dictionary_encode()

    @cached_property
    def raw_rows(self) -> npt.NDArray[np.int64]:
        """Rows whose body is compressed already."""
        return raw_rows(self.body, self.integers("sys_flag"), self.body_crc)

    def integers(self, name: str) -> Array | None:
        """Return a column of whole numbers as 64 bits, or None."""
        return self._typed(name, pa.int64())

    def born_timestamps(self, now_ms: int) -> npt.NDArray[np.int64]:
        """Return the times of birth, ms; now where none is given."""
        column = self._given("born_timestamp")
        if column is None:
            return np.full(len(self), now_ms, np.int64)
        ticks = column.cast(pa.int64())
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        values = ticks.fill_null(0).to_numpy(zero_copy_only=False)
        return np.where(valid, values // _TICKS_PER_MS[column.type.unit], now_ms).astype(np.int64)

    def _given(self, name: str) -> Array | None:
        """Return a column, or None where it is missing or all null."""
        at = self._columns.index.get(name)
        if at is None:
            return None
        column = self.batch.column(at)
        return None if column.null_count == len(column) else column

    def _typed(self, name: str, kind: DataType) -> Array | None:
        column = self._given(name)
        if column is None or column.type == kind:
            return column
        return column.cast(kind)

    def _keys(self) -> Array | None:
        column = self._given("keys")
        if column is None:
            return None
        is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
        return column.cast(_WORDS if is_list else _TEXT)

    def _topic(self, default: str | None) -> Array:
        column = self._typed("topic", _TEXT)
        if column is None:
            return pa.array([default], _TEXT).take(pa.array(np.zeros(len(self), np.int8)))
        return column if default is None else pc.fill_null(column, default)


def is_null(column: Array | None, count: int) -> Bools:
    """Return which rows of a column (None: all) are null."""
    if column is None:
        return np.ones(count, bool)
    if column.null_count == 0:
        return np.zeros(count, bool)
    nulls: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
