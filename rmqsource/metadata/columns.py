# SPDX-License-Identifier: Apache-2.0
"""Build parts of metadata tables: plain values and numpy arrays -> ``pa.Table`` as declared."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqsource.tables import table_named
from store_core.arrow import pa
from store_core.codec.message_batch_codec import timestamp_column, timestamp_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array, DataType, Table

NO_TIME = int(np.iinfo(np.int64).min)
"""An unknown time; it becomes null, as do all times that do not fit."""


@cache
def _arrow_types() -> dict[str, DataType]:
    return {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": timestamp_type(),
        "array<string>": pa.list_(pa.string()),
    }


def table_part(table: str, store: str, row_count: int, **columns: Any) -> Table:
    """Return rows of a table as a ``pa.Table`` with all its columns in their declared order.

    Parameters
    ----------
    columns
        By name: one string for all rows, an Arrow array, a sequence of strings or integers (None
        becomes null), or a numpy array. Times are in ms.
    """
    values = {**columns, "store": store}
    arrays = []
    fields = []
    for column in table_named(table).columns:
        arrow_type = _arrow_types()[column.type]
        arrays.append(_array(values[column.name], arrow_type, row_count))
        fields.append(pa.field(column.name, arrow_type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def nullable(values: npt.NDArray[Any], is_null: npt.NDArray[np.bool_]) -> Array:
    """Return an Arrow array of the values, null where ``is_null`` is set."""
    return pa.array(values, mask=is_null)


def _array(value: Any, arrow_type: DataType, row_count: int) -> Array:
    if isinstance(value, str):
        return pa.repeat(pa.scalar(_encodable(value), arrow_type), row_count)
    if isinstance(value, pa.Array):
        return value.cast(arrow_type)
    if arrow_type == timestamp_type():
        return timestamp_column(_times(value))
    if arrow_type == pa.string():
        return pa.array([_encodable(text) for text in value], arrow_type)
    return pa.array(value, arrow_type)


def _times(value: Any) -> npt.NDArray[np.int64]:
    if isinstance(value, np.ndarray):
        return value.astype(np.int64)
    known: Sequence[int] = [NO_TIME if time is None else time for time in value]
    return np.array(known, np.int64)


def _encodable(text: str) -> str:
    """Replace lone surrogates, which file names and JSON may contain but UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()
