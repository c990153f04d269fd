# SPDX-License-Identifier: Apache-2.0
"""pyarrow, loaded on first use, and functions that it lacks for arrays of bytes.

Loading it takes a quarter of a second and more memory than all the rest of a broker, and a broker
that puts and delivers messages one by one never needs it. Much of this package works with both
single messages and columns, often in one module; instead of an import in each function that
works with columns, those modules take ``pa`` and ``pc`` from here (setup.cfg enforces this)
and must use neither while they are imported themselves.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array

__all__ = [
    "any_row_holds",
    "binary_parts",
    "fixed_width_strings",
    "gather_binary",
    "nullable_parts",
    "pa",
    "pc",
    "replace_rows",
    "take_bytes",
]

_MOST_KEPT_BYTES = 2 << 20
_MAX_SPAN = 2**31 - 1


class _LoadedOnUse(ModuleType):
    """A module whose attributes come from the real one of its name.

    Any thread may be the first: the lock of the import system lets one load and the others wait.
    """

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)  # from now on found without this call
        return value


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = _LoadedOnUse("pyarrow")
    pc = _LoadedOnUse("pyarrow.compute")


# An Arrow binary array may have any monotonic offsets. With ``[start0, end0, start1, …]`` over a
# mapped file, its even pieces are the requested ranges, and ``take`` copies 20 to 50 million pieces
# per second.
def gather_binary(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[Any], lengths: npt.NDArray[Any]
) -> Array:
    """Return the ranges as a ``pa.BinaryArray``.

    Parameters
    ----------
    data
        Contiguous bytes; the result does not refer to it.
    starts, lengths
        Ascending and free of overlap; checked by the caller against ``len(data)``.
        Together they have less than 2 GiB, but may span more.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    first = int(starts[0])
    span = int(starts[-1]) + int(lengths[-1]) - first
    if span > _MAX_SPAN:
        half = count // 2
        parts = [
            gather_binary(data, starts[:half], lengths[:half]),
            gather_binary(data, starts[half:], lengths[half:]),
        ]
        return pa.concat_arrays(parts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts - first
    offsets[1::2] = offsets[0:-1:2] + lengths
    offsets[-1] = offsets[-2]
    window = pa.py_buffer(data[first : first + span])
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), window])
    return take_bytes(pieces, pa.array(np.arange(0, 2 * count, 2)), int(lengths.sum()))


def take_bytes(array: Array, rows: Array, most_bytes: int) -> Array:
    """Return rows of an array of bytes, at most ``most_bytes`` in total.

    Arrow's own pool frees memory that was unused for 10 ms, so a caller that needs a MiB every
    20 ms waits each time for the kernel to clear it, longer than for the copy. ``malloc`` retains a
    few MiB; larger results come from the pool.
    """
    pool = pa.system_memory_pool() if most_bytes <= _MOST_KEPT_BYTES else None
    return pc.take(array, rows, memory_pool=pool)


def binary_parts(array: Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Return (offsets, bytes) of a string or binary array without copying; bytes start at 0.

    Only offsets that are not aligned, as those of a batch in other bytes may be, are copied.
    """
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1]
    offsets = np.require(offsets, requirements="A")
    if buffers[2] is None:
        return offsets, np.empty(0, np.uint8)
    return offsets, np.frombuffer(buffers[2], np.uint8)


def are_among(strings: Array, texts: Array) -> npt.NDArray[np.bool_]:
    """Return which strings, or bytes, are one of some others; nulls are not."""
    found: npt.NDArray[np.bool_] = pc.is_in(strings, value_set=texts).to_numpy(zero_copy_only=False)
    return found


def nullable_parts(array: Array | None) -> tuple[Any, Any, Any]:
    """Return `binary_parts` and a column of which rows are valid, as the kernel takes them.

    The column is None if all rows are valid; all three are None without an array.
    """
    if array is None:
        return None, None, None
    offsets, data = binary_parts(array)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    return offsets, data, valid


def any_row_holds(array: Array, mark: bytes, rare: bytes) -> bool:
    """Return whether a string or binary array contains a mark, perhaps across two rows.

    Parameters
    ----------
    rare
        A byte of the mark that is rare: searching for a single byte is twenty times as fast.
    """
    offsets, data = binary_parts(array)
    held = data[offsets[0] : offsets[-1]].tobytes()
    return rare in held and mark in held


def fixed_width_strings(characters: npt.NDArray[np.uint8]) -> Array:
    """Return the rows of an ``(n, width)`` array of ASCII codes as a ``pa.StringArray``."""
    count, width = characters.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int64).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(),
        count,
        [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters))],
    )


def replace_rows(array: Array, rows: npt.NDArray[np.int64], values: Array) -> Array:
    """Return ``array`` with ``values[k]`` at ``rows[k]``, by one concat and one take."""
    # In [a, b, c], rows [2, 0] become [x, y]: take [4, 1, 3] from [a, b, c, x, y], which is
    # [y, b, x].
    index = np.arange(len(array), dtype=np.int64)
    index[rows] = len(array) + np.arange(len(rows), dtype=np.int64)
    return pa.concat_arrays([array, values]).take(pa.array(index))
