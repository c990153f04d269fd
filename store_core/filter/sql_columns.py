# SPDX-License-Identifier: Apache-2.0
"""Evaluates a SQL filter for many messages in one call; equal to `sql_scalar` row by row.

A step's result is a column of truth: three arrays that show where it is TRUE, where FALSE, and
where RocketMQ's evaluation fails; elsewhere it is NULL. So ``a > 5`` gives

    ========  ====  =====  ======
    a         true  false  failed
    ========  ====  =====  ======
    "6"       1     0      0
    "5"       0     1      0
    absent    0     0      0
    "x"       0     0      1
    ========  ====  =====  ======

Constants stay scalars as long as they are combined only with constants.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from store_core.arrow import binary_parts, pa, pc
from store_core.filter import sql_steps as steps
from store_core.filter.sql_scalar import (
    FUNCTIONS,
    ORDERS,
    ThrowingValue,
    double_order,
    parse_double,
    parse_integer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array

    Bools = npt.NDArray[np.bool_]
    Int64s = npt.NDArray[np.int64]

_MOST_INTEGER_DIGITS = 19  # any 19-digit number, even beyond a Long, fits 64 unsigned bits
_MOST_SHORT_DIGITS = 9  # as many fit any integer
_MOST_DOUBLE_CHARACTERS = 100  # far from infinity, where Arrow and Java might differ
_MAGNITUDE_MASK = np.int64(0x7FFFFFFFFFFFFFFF)
_ZERO, _NINE, _POINT = ord("0"), 9, ord(".")


class TruthColumn(NamedTuple):
    """Results of a SQL filter; NULL where none of the three is set.

    Columns may share arrays, so do not change them.
    """

    true: Bools
    false: Bools
    failed: Bools


class _Texts:
    """A property of all messages, with cached conversions."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.valid = _bools(array.is_valid())
        self._numbers: dict[int, NumberColumn] = {}

    def numbers(self, beside: Any) -> NumberColumn:
        """Return the values as numbers of a constant's type."""
        bits = 0 if isinstance(beside, float) else steps.integer_bits(beside)
        if bits not in self._numbers:
            read = integer_column(self.array, bits) if bits else double_column(self.array)
            self._numbers[bits] = read
        return self._numbers[bits]

    def is_true_text(self) -> Bools:
        """Return ``Boolean.valueOf`` of the values."""
        return _bools(pc.equal(pc.ascii_lower(self.array), "true"))


def evaluate_columns(
    program: Sequence[steps.Step], columns: Mapping[str, Array], rows: int
) -> TruthColumn:
    """Return the results of a filter's steps for all rows."""
    texts: dict[str, _Texts] = {}
    stack: list[Any] = []
    for operation, argument in program:
        if operation == steps.PUSH:
            stack.append(argument)
        elif operation == steps.LOAD:
            name = str(argument)
            if name not in texts:
                texts[name] = _Texts(columns[name])
            stack.append(texts[name])
        else:
            arity = steps.ARITY[operation]
            stack[-arity:] = [_apply(operation, argument, *stack[-arity:])]
    return _truth(stack.pop(), rows)


def _apply(operation: str, argument: object, *operands: Any) -> Any:
    columnar = any(isinstance(operand, (TruthColumn, _Texts)) for operand in operands)
    return (_FUNCTIONS if columnar else FUNCTIONS)[operation](argument, *operands)


def _bools(array: Array) -> Bools:
    """Return an Arrow array of truth values; FALSE where it is null."""
    filled = pc.fill_null(array, False) if array.null_count else array
    truths: Bools = filled.to_numpy(zero_copy_only=False)
    return truths


def _truth(value: Any, rows: int) -> TruthColumn:
    """Return TRUE, FALSE, NULL or a failure as a column."""
    if isinstance(value, TruthColumn):
        return value
    facts = (value is True, value is False, isinstance(value, ThrowingValue))
    return TruthColumn(*(np.full(rows, fact) for fact in facts))


def _pair(left: Any, right: Any) -> tuple[TruthColumn, TruthColumn]:
    """Return both operands of AND and OR as columns; at least one is a column already."""
    rows = len((left if isinstance(left, TruthColumn) else right).true)
    return _truth(left, rows), _truth(right, rows)


def _cast(_: object, texts: _Texts) -> TruthColumn:
    none = np.zeros_like(texts.valid)
    return TruthColumn(none, texts.valid, none)


def _not(_: object, value: TruthColumn) -> TruthColumn:
    return TruthColumn(value.false, value.true, value.failed)


def _negate(_: object, value: TruthColumn) -> TruthColumn:
    none = np.zeros_like(value.failed)
    return TruthColumn(none, none, value.failed)


def _is_null(_: object, value: Any) -> TruthColumn:
    null, failed = _null_and_failed(value)
    return TruthColumn(null, ~(null | failed), failed)


def _null_and_failed(value: Any) -> tuple[Any, Any]:
    """Return where a value is NULL and where it failed: arrays, or one value for all rows."""
    if isinstance(value, _Texts):
        return ~value.valid, np.zeros_like(value.valid)
    if isinstance(value, TruthColumn):
        return ~(value.true | value.false | value.failed), value.failed
    return np.bool_(value is None), np.bool_(isinstance(value, ThrowingValue))


def _in(texts: Any, value: _Texts) -> TruthColumn:
    wanted = pa.array(sorted(texts), pa.string())
    return _of_found(value, _bools(pc.is_in(value.array, wanted)) & value.valid)


def _of_found(value: _Texts, found: Bools) -> TruthColumn:
    return TruthColumn(found, value.valid & ~found, np.zeros_like(found))


_KERNELS = {"CONTAINS": "match_substring", "STARTSWITH": "starts_with", "ENDSWITH": "ends_with"}


def _search(search: steps.Search, value: Any) -> Any:
    if not search.text:
        return False
    if isinstance(value, TruthColumn):
        return TruthColumn(np.zeros_like(value.failed), ~value.failed, value.failed)
    found = _bools(getattr(pc, _KERNELS[search.word])(value.array, search.text))
    true = value.valid & ~found if search.negated else found
    return TruthColumn(true, ~true, np.zeros_like(true))


def _and(_: object, left: Any, right: Any) -> TruthColumn:
    left, right = _pair(left, right)
    false = left.false | (right.false & ~left.failed)
    failed = left.failed | (right.failed & ~left.false)
    return TruthColumn(left.true & right.true, false, failed)


def _or(_: object, left: Any, right: Any) -> TruthColumn:
    left, right = _pair(left, right)
    true = left.true | (right.true & ~left.failed)
    failed = left.failed | (right.failed & ~left.true)
    return TruthColumn(true, left.false & right.false, failed)


def _compare(symbol: Any, left: Any, right: Any) -> Any:
    """Compare properties and numbers; other operands are only NULL and failures."""
    left_null, left_failed = _null_and_failed(left)
    right_null, right_failed = _null_and_failed(right)
    # RocketMQ ignores the right operand where the left one is NULL.
    failed = left_failed | (right_failed & ~left_null)
    both = ~(left_null | right_null | left_failed | right_failed)
    if not both.any():
        none = np.zeros_like(failed)
        return TruthColumn(none, none, failed)
    beside = _number_of(left, right)
    keys, bad = _keys(left, beside)
    other_keys, other_bad = _keys(right, beside)
    for rows in (bad, other_bad):
        if rows is not None:
            failed = failed | (rows & both)
            both = both & ~rows
    true = ORDERS[symbol](keys, other_keys) & both
    return TruthColumn(true, both & ~true, failed)


def _number_of(left: Any, right: Any) -> Any:
    """Return a number of the type used to compare both; for two properties, a double."""
    for value in (left, right):
        if isinstance(value, (int, float)):
            return value
    return 0.0


def _keys(value: Any, beside: Any) -> NumberColumn:
    if isinstance(value, _Texts):
        return value.numbers(beside)
    key = double_order(value) if isinstance(value, float) else value
    return NumberColumn(np.array(key, np.int64), None)


def _between(_: object, value: Any, low: Any, high: Any) -> Any:
    above, below = _apply(steps.COMPARE, ">=", value, low), _apply(steps.COMPARE, "<=", value, high)
    return _apply(steps.AND, None, above, below)


def _outside(_: object, value: Any, low: Any, high: Any) -> Any:
    below, above = _apply(steps.COMPARE, "<", value, low), _apply(steps.COMPARE, ">", value, high)
    return _apply(steps.OR, None, below, above)


def _equal(_: object, left: Any, right: Any) -> TruthColumn:
    left_null, left_failed = _null_and_failed(left)
    right_null, right_failed = _null_and_failed(right)
    failed = left_failed | right_failed
    both = ~(left_null | right_null | failed)
    same, bad = _same(left, right)
    if bad is not None:
        failed = failed | (bad & both)
        both = both & ~bad
    true = (both & same) | (left_null & right_null)
    false = (both & ~same) | (right_null & ~left_null & ~failed)
    return TruthColumn(true, false, failed)


def _same(left: Any, right: Any) -> tuple[Any, Any]:
    """Return where two values that are not NULL are equal, and where the comparison fails."""
    if isinstance(left, (TruthColumn, bool)) and isinstance(right, (_Texts, str)):
        return np.bool_(False), np.bool_(True)  # Java casts the truth value to a text
    if isinstance(left, (TruthColumn, bool)) or isinstance(right, (TruthColumn, bool)):
        pair = _as_truth(left), _as_truth(right)
        never = pair[0] is None or pair[1] is None
        return np.bool_(False) if never else pair[0] == pair[1], None
    if isinstance(left, (_Texts, str)) and isinstance(right, (_Texts, str)):
        return _bools(pc.equal(_text_array(left), _text_array(right))), None
    if left is None or right is None or ThrowingValue in {type(left), type(right)}:
        return np.bool_(False), None
    beside = _number_of(left, right)
    (keys, bad), (other_keys, other_bad) = _keys(left, beside), _keys(right, beside)
    return keys == other_keys, other_bad if bad is None else bad


def _as_truth(value: Any) -> Any:
    """Return a value as Java compares it with a Boolean; None if it never equals one."""
    if isinstance(value, TruthColumn):
        return value.true
    if isinstance(value, _Texts):
        return value.is_true_text()
    if isinstance(value, str):
        return np.bool_(value.lower() == "true")
    return np.bool_(value) if isinstance(value, bool) else None


def _text_array(value: Any) -> Any:
    return value.array if isinstance(value, _Texts) else value


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    steps.CAST: _cast,
    steps.NOT: _not,
    steps.NEGATE: _negate,
    steps.IS_NULL: _is_null,
    steps.IN: _in,
    steps.SEARCH: _search,
    steps.AND: _and,
    steps.OR: _or,
    steps.COMPARE: _compare,
    steps.EQUAL: _equal,
    steps.BETWEEN: _between,
    steps.OUTSIDE: _outside,
}


# Arrow parses texts of digits with at most one point and at most one leading minus. `sql_scalar`
# parses the others (``+5``, ``1e3``, ``0x1p3``, digits of other scripts, texts that are not
# numbers), each distinct text once. Property tests check that both ways agree.
class NumberColumn(NamedTuple):
    """Numbers as integer keys in the same order, and the rows without a number.

    Attributes
    ----------
    bad
        Rows with a text that is not a number; None if there are none.
    """

    keys: Int64s
    bad: Bools | None


def integer_column(texts: Array, bits: int) -> NumberColumn:
    """Return ``Integer.valueOf`` (32 bits) or ``Long.valueOf`` (64) of a column of strings."""
    if _are_short_numbers(texts):
        return NumberColumn(_numbers(texts.cast(pa.int64())), None)
    digits, shape = _without_minus(texts)
    plain = (shape.others == 0) & (shape.length > 0) & (shape.length <= _MOST_INTEGER_DIGITS)
    magnitude = _cast_where(digits, plain & (shape.minuses <= 1), pa.uint64())
    negative = shape.minuses == 1
    fits = magnitude.read
    if shape.length.max(initial=0) > _MOST_SHORT_DIGITS:
        fits = fits & (magnitude.values <= np.uint64((1 << bits - 1) - 1) + negative)
    keys = magnitude.values.astype(np.int64)
    if negative.any():
        keys = np.where(negative, -keys, keys)
    return _with_the_odd(texts, keys, fits, lambda text: parse_integer(text, bits))


def _are_short_numbers(texts: Array) -> bool:
    """Return whether every text has one to nine digits and nothing else: usual, and plain."""
    if texts.null_count or not len(texts):
        return False
    offsets, data = binary_parts(texts)
    length = offsets[1:] - offsets[:-1]
    if int(length.min()) < 1 or int(length.max()) > _MOST_SHORT_DIGITS:
        return False
    return int((data[offsets[0] : offsets[-1]] - np.uint8(_ZERO)).max()) <= _NINE


def double_column(texts: Array) -> NumberColumn:
    """Return ``Double.valueOf`` of a column of strings; nulls are not bad."""
    digits, shape = _without_minus(texts)
    plain = (shape.others == shape.points) & (shape.points <= 1) & (shape.length > shape.points)
    plain &= (shape.length <= _MOST_DOUBLE_CHARACTERS) & (shape.minuses <= 1)
    magnitude = _cast_where(digits, plain, pa.float64())
    negative = shape.minuses == 1
    values = np.where(negative, -magnitude.values, magnitude.values)
    return _with_the_odd(texts, double_keys(values), magnitude.read, _double_key)


def double_keys(values: npt.NDArray[np.float64]) -> Int64s:
    """Return keys that order as ``Double.compare``: `sql_scalar.double_order` of a column."""
    # A double's bits order as its magnitude does; those of negative ones are inverted, so that
    # -1.0 -0.0 0.0 1.0 NaN have ascending keys.
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _MAGNITUDE_MASK, bits)


def _double_key(text: str) -> int | None:
    number = parse_double(text)
    if number is None:
        return None
    return int(double_keys(np.array([math.nan if math.isnan(number) else number]))[0])


class _Shape(NamedTuple):
    """Byte counts of each text: leading minuses; after them all bytes, non-digits, and points."""

    minuses: npt.NDArray[np.int32]
    length: npt.NDArray[np.int32]
    others: npt.NDArray[np.int32]
    points: npt.NDArray[np.int32]


def _without_minus(texts: Array) -> tuple[Array, _Shape]:
    """Return the texts without their leading minuses, and the shape of the rest.

    ``-12.5`` and ``--7`` become ``12.5`` and ``7``, with 1 and 2 minuses, lengths 4 and 1, one and
    no byte that is not a digit, one and no point.
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
    """Return the texts of the selected rows as numbers; 0 in the others."""
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
    """Parse the remaining rows, each distinct text once."""
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
