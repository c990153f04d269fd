# SPDX-License-Identifier: Apache-2.0
"""The kernel's columns as Arrow arrays: one block a batch, which the kernel fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from store_core import native
from store_core.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array, DataType

    Int64s = npt.NDArray[np.int64]

# The kernel reserves the room of all properties for each property asked by name. What it does not
# write takes no memory, but limits of a process count it.
_MOST_TIMES, _MOST_MORE = 4, 64 << 20
_MAP, _LIST = "properties", "keys"


class RecordColumns(NamedTuple):
    """Columns of some records.

    Attributes
    ----------
    refused
        Rows, ascending, that the kernel leaves to NumPy; their values here are empty.
    """

    columns: dict[str, Array]
    refused: npt.NDArray[np.int32]


def record_columns(
    data: npt.NDArray[np.uint8],
    position: Int64s,
    parts: Int64s,
    types: Mapping[str, DataType],
    property_of: Mapping[str, str],
) -> RecordColumns | None:
    """Return the columns of whole records; None if that takes too much room.

    Parameters
    ----------
    parts
        As `RecordFrames.parts`.
    types
        Names and types of the wanted columns of table ``messages``.
    property_of
        Column -> the property that it holds; these may have any name.
    """
    names: tuple[str, ...] = native.kernel.COLUMNS
    wanted = sum(1 << names.index(name) for name in types if name not in property_of)
    named = [name for name in types if name in property_of]
    of_names = tuple(property_of[name].encode() for name in named)
    made = native.kernel.columns(data, position, parts, wanted, of_names, _allocation(data))
    if made is None:
        return None
    block, *places, at, count = made
    arrays = _Arrays(block, names, places)
    columns = {
        name: arrays.text(len(names) + named.index(name), kind)
        if name in property_of
        else arrays.array(name, kind, len(position))
        for name, kind in types.items()
    }
    return RecordColumns(columns, arrays.rows_at(at, count))


def property_values(
    data: npt.NDArray[np.uint8], start: Int64s, count: Int64s, names: Sequence[str]
) -> RecordColumns | None:
    """Return the values of some properties as columns of these names, null where absent.

    None if that takes too much room.

    Parameters
    ----------
    start, count
        Where the property string of each row is in the data, and its bytes.
    """
    kernel = native.kernel
    if len(names) > kernel.MOST_NAMES:
        return None
    of_names = tuple(name.encode() for name in names)
    made = kernel.values(data, start, count, of_names, _allocation(data))
    if made is None:
        return None
    block, *places, refused_at, refused = made
    arrays = _Arrays(block, kernel.COLUMNS, places)
    columns = {name: arrays.text(at, pa.string()) for at, name in enumerate(names)}
    return RecordColumns(columns, arrays.rows_at(refused_at, refused))


def _allocation(data: npt.NDArray[np.uint8]) -> Callable[[int], Any]:
    """Return a function that makes room for columns of some data; it returns None for too much."""

    def allocate(size: int) -> Any:
        if size > _MOST_TIMES * len(data) + _MOST_MORE:
            return None
        return pa.allocate_buffer(size)  # of Arrow's pool: new pages cost a fifth of the time

    return allocate


class _Arrays(NamedTuple):
    """Arrays over the parts of a block.

    ``made`` has (rows, nulls, validity, offsets, data, bytes of data) of each column; -1: none.
    """

    block: Any
    names: tuple[str, ...]
    made: list[tuple[int, int, int, int, int, int]]

    def array(self, name: str, kind: DataType, rows: int) -> Array:
        """Return a column of records."""
        at = self.names.index(name)
        if name == _MAP:
            children = [self.text(at + 1, kind.key_type), self.text(at + 2, kind.item_type)]
            fields = [kind.key_field, kind.item_field]
            return self._list(at, kind, pa.StructArray.from_arrays(children, fields=fields))
        if name == _LIST:
            return self._list(at, kind, self.text(at + 1, kind.value_type))
        if self.made[at][3] >= 0:
            return self.text(at, kind)
        data = self.block.slice(self.made[at][4], rows * kind.bit_width // 8)
        return pa.Array.from_buffers(kind, rows, [None, data], 0)

    def text(self, at: int, kind: DataType) -> Array:
        """Return a column of strings or bytes, by its number."""
        rows, nulls, _, offsets, data, used = self.made[at]
        parts = [self.block.slice(offsets, 4 * (rows + 1)), self.block.slice(data, used)]
        return pa.Array.from_buffers(kind, rows, [self._validity(at), *parts], nulls)

    def rows_at(self, at: int, count: int) -> npt.NDArray[np.int32]:
        """Return a copy of some row numbers."""
        return np.frombuffer(self.block.slice(at, 4 * count), np.int32).copy()

    def _list(self, at: int, kind: DataType, child: Array) -> Array:
        rows, nulls, _, offsets, _, _ = self.made[at]
        buffers = [self._validity(at), self.block.slice(offsets, 4 * (rows + 1))]
        return pa.Array.from_buffers(kind, rows, buffers, nulls, children=[child])

    def _validity(self, at: int) -> Any:
        rows, nulls, valid, *_ = self.made[at]
        return self.block.slice(valid, (rows + 7) // 8) if nulls else None
