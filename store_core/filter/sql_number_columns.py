"""Columns of texts as numbers, as Java reads them.

Texts of digits, at most one point and at most one minus before them are read by Arrow. What is
left (``+5``, ``1e3``, ``0x1p3``, digits of other scripts, no number at all) is read by
`sql_numbers`, each different text once. Property tests hold both ways equal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.gather import binary_parts
from store_core.filter.sql_numbers import parse_double, parse_integer

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.arrow_types import Array

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

_MOST_INTEGER_DIGITS = (
    19  # of any 19, also of those beyond a Long, 64 bits without sign hold the value
)
_MOST_DOUBLE_CHARACTERS = 100  # far from infinity, which Arrow and Java might tell differently
_MAGNITUDE_MASK = np.int64(0x7FFFFFFFFFFFFFFF)
_ZERO, _NINE, _POINT = ord("0"), 9, ord(".")


class NumberColumn(NamedTuple):
    """Numbers in an order that integers have, and where there is none.

    Attributes
    ----------
    keys
        Integers, or of doubles what orders as ``Double.compare``. Anything where there is none.
    bad
        Rows with a text that is no number. None: there are none.
    """

    keys: Int64s
    bad: Bools | None


def integer_column(texts: Array, bits: int) -> NumberColumn:
    """Return what ``Integer.valueOf`` (32 bits) or ``Long.valueOf`` (64) make of a column.

    Parameters
    ----------
    texts
        ``pa.StringArray``; nulls are neither numbers nor bad.
    """
    digits, shape = _without_minus(texts)
    plain = (shape.others == 0) & (shape.length > 0) & (shape.length <= _MOST_INTEGER_DIGITS)
    magnitude = _cast_where(digits, plain & (shape.minuses <= 1), pa.uint64())
    negative = shape.minuses == 1
    fits = magnitude.read
    if shape.length.max(initial=0) > 9:  # noqa: PLR2004 (as many digits fit any integer)
        fits = fits & (magnitude.values <= np.uint64((1 << bits - 1) - 1) + negative)
    keys = magnitude.values.astype(np.int64)
    if negative.any():
        keys = np.where(negative, -keys, keys)
    return _with_the_odd(texts, keys, fits, lambda text: parse_integer(text, bits))


def double_column(texts: Array) -> NumberColumn:
    """Return what ``Double.valueOf`` makes of a column of strings; nulls are not bad."""
    digits, shape = _without_minus(texts)
    plain = (shape.others == shape.points) & (shape.points <= 1) & (shape.length > shape.points)
    plain &= (shape.length <= _MOST_DOUBLE_CHARACTERS) & (shape.minuses <= 1)
    magnitude = _cast_where(digits, plain, pa.float64())
    negative = shape.minuses == 1
    values = np.where(negative, -magnitude.values, magnitude.values)
    return _with_the_odd(texts, double_keys(values), magnitude.read, _double_key)


def double_keys(values: npt.NDArray[np.float64]) -> Int64s:
    """Return keys that order as ``Double.compare``; `sql_numbers.double_order` of a column."""
    # A double's bits order as its magnitude does; of negative ones they are turned round, so that
    # -1.0 -0.0 0.0 1.0 NaN have ascending keys.
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _MAGNITUDE_MASK, bits)


def _double_key(text: str) -> int | None:
    number = parse_double(text)
    if number is None:
        return None
    return int(double_keys(np.array([math.nan if math.isnan(number) else number]))[0])


class _Shape(NamedTuple):
    """Numbers of bytes of each text: minuses at its begin; of what is behind them, all and some."""

    minuses: npt.NDArray[np.int32]
    length: npt.NDArray[np.int32]
    others: npt.NDArray[np.int32]
    points: npt.NDArray[np.int32]


def _without_minus(texts: Array) -> tuple[Array, _Shape]:
    """Return the texts without the minuses at their begin, and the shape of what is left.

    Of ``-12.5`` and ``--7`` are left ``12.5`` and ``7``, with 1 and 2 minuses, lengths 4 and 1, one
    other byte than digits and none, one point and none.
    """
    digits = pc.ascii_ltrim(texts, "-")
    offsets, data = binary_parts(digits)
    first, stop = int(offsets[0]), int(offsets[-1])
    data, offsets = data[first:stop], offsets - first
    length = np.diff(offsets)
    other = (data - np.uint8(_ZERO)) > _NINE
    points = others = np.zeros(len(length), np.int32)
    if other.any():
        others = _sum_of_rows(other, offsets)
        points = _sum_of_rows(data == _POINT, offsets)
    minuses = np.diff(binary_parts(texts)[0]) - length
    return digits, _Shape(minuses, length, others, points)


def _sum_of_rows(marked: Bools, offsets: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    before = np.zeros(len(marked) + 1, np.int32)
    np.cumsum(marked, out=before[1:])
    return np.diff(before[offsets])


class _Cast(NamedTuple):
    values: npt.NDArray[Any]
    read: Bools


def _cast_where(texts: Array, wanted: Bools, kind: Any) -> _Cast:
    """Return the texts of some rows as numbers; 0 in the others."""
    if texts.null_count:
        wanted = wanted & _valid(texts)
    if wanted.all():
        return _Cast(_numbers(texts.cast(kind)), wanted)
    some = _numbers(texts.filter(pa.array(wanted)).cast(kind))
    values = np.zeros(len(texts), some.dtype)
    values[wanted] = some
    return _Cast(values, wanted)


def _numbers(array: Array) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return numbers


def _valid(array: Array) -> Bools:
    valid: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _with_the_odd(
    texts: Array, keys: Int64s, read: Bools, parse: Callable[[str], int | None]
) -> NumberColumn:
    """Read the rows that are left, each different text once."""
    left = ~read & _valid(texts) if texts.null_count else ~read
    rows = np.flatnonzero(left)
    if len(rows) == 0:
        return NumberColumn(keys, None)
    encoded = texts.take(pa.array(rows)).dictionary_encode()
    parsed = [parse(text) for text in encoded.dictionary.to_pylist()]
    which = _numbers(encoded.indices)
    keys = keys.copy()
    keys[rows] = np.array([0 if key is None else key for key in parsed], np.int64)[which]
    bad = np.zeros(len(texts), np.bool_)
    bad[rows] = np.array([key is None for key in parsed])[which]
    return NumberColumn(keys, bad if bad.any() else None)
