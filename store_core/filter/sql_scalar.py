# SPDX-License-Identifier: Apache-2.0
"""Evaluates a SQL filter for one message.

Source: RocketMQ ``ComparisonExpression``, ``LogicExpression``, ``UnaryExpression`` (release 5.3.3;
the rules of 4.9.7 are equal).
"""

from __future__ import annotations

import math
import operator
import re
import struct
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from store_core.codec.java_string import java_integer
from store_core.filter import sql_steps as steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
"""Symbol of a comparison -> the function, for numbers and for arrays."""
_JAVA_TRIM = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?)(0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED = re.compile(r"([+-]?)(NaN|Infinity)")
_LAST_SINGLE_UNIT = "\uffff"


class ThrowingValue(NamedTuple):
    """A value for which RocketMQ throws an exception, with its text and the reason."""

    text: str
    reason: str


def evaluate(
    program: Sequence[steps.Step], properties: Mapping[str, str]
) -> bool | ThrowingValue | None:
    """Return TRUE, FALSE, NULL or a failure, as RocketMQ's evaluation of one message does."""
    stack: list[Any] = []
    for operation, argument in program:
        if operation == steps.LOAD:
            stack.append(properties.get(argument))  # type: ignore[call-overload] # always a name
        elif operation == steps.PUSH:
            stack.append(argument)
        else:
            arity = steps.ARITY[operation]
            operands = stack[-arity:]
            stack[-arity:] = [FUNCTIONS[operation](argument, *operands)]
    result: bool | ThrowingValue | None = stack.pop()
    return result


def _cast(_: object, value: Any) -> Any:
    return value if value is None else False


def _not(_: object, value: Any) -> Any:
    return not value if isinstance(value, bool) else value


def _negate(_: object, value: Any) -> Any:
    return value if isinstance(value, ThrowingValue) else None


def _is_null(_: object, value: Any) -> Any:
    return value if isinstance(value, ThrowingValue) else value is None


def _in(texts: Any, value: Any) -> Any:
    return value in texts if isinstance(value, str) else value


def _search(search: steps.Search, value: Any) -> Any:
    if not search.text:
        return False  # RocketMQ ignores the value then
    if not isinstance(value, str):
        return value if isinstance(value, ThrowingValue) else False
    return SEARCHES[search.word](value, search.text) != search.negated


SEARCHES: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def _and(_: object, left: Any, right: Any) -> Any:
    if left is False or isinstance(left, ThrowingValue):
        return left
    if right is False or isinstance(right, ThrowingValue):
        return right
    return None if left is None or right is None else True


def _or(_: object, left: Any, right: Any) -> Any:
    if left is True or isinstance(left, ThrowingValue):
        return left
    if right is True or isinstance(right, ThrowingValue):
        return right
    return None if left is None or right is None else False


def _compare(symbol: Any, left: Any, right: Any) -> Any:
    if left is None or isinstance(left, ThrowingValue):
        return left
    if right is None or isinstance(right, ThrowingValue):
        return right
    if isinstance(left, str) and isinstance(right, str):
        pair = _number_beside(left, 0.0), _number_beside(right, 0.0)
    else:
        pair = _as_numbers(left, right)
    for number in pair:
        if isinstance(number, ThrowingValue):
            return number
    return ORDERS[symbol](*map(_order, pair))


def _between(_: object, value: Any, low: Any, high: Any) -> Any:
    return _and(None, _compare(">=", value, low), _compare("<=", value, high))


def _outside(_: object, value: Any, low: Any, high: Any) -> Any:
    return _or(None, _compare("<", value, low), _compare(">", value, high))


def _equal(_: object, left: Any, right: Any) -> Any:
    for value in (left, right):
        if isinstance(value, ThrowingValue):
            return value
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, bool):
        return _truth_equal(left, right)
    if isinstance(right, bool):
        return isinstance(left, str) and (left.lower() == "true") == right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    pair = _as_numbers(left, right)
    for number in pair:
        if isinstance(number, ThrowingValue):
            return number
    return pair[0] == pair[1]


def _truth_equal(left: bool, right: Any) -> Any:
    if isinstance(right, str):
        return ThrowingValue(right, "cannot be compared with a truth value on the left of = or <>")
    return left == right if isinstance(right, bool) else False


def _as_numbers(left: Any, right: Any) -> tuple[Any, Any]:
    """Parse a text as the other operand's type; a double is wider than a whole number."""
    if isinstance(left, str):
        return _number_beside(left, right), right
    if isinstance(right, str):
        return left, _number_beside(right, left)
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def _number_beside(text: str, number: Any) -> float | ThrowingValue:
    value: float | None
    if isinstance(number, float):
        value, kind = parse_double(text), "number"
    else:
        bits = steps.integer_bits(number)
        value, kind = parse_integer(text, bits), f"whole number of {bits} bits, as {number} is"
    return ThrowingValue(text, f"is not a {kind}") if value is None else value


def _order(number: Any) -> int:
    return double_order(number) if isinstance(number, float) else number


FUNCTIONS: dict[str, Callable[..., Any]] = {
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
"""Step -> its function, which gets the step's argument, then the operands."""


# Source: ``Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf`` (OpenJDK 17), as called by
# RocketMQ's ``ComparisonExpression.__compare`` (release 5.3.3).
def parse_integer(text: str, bits: int) -> int | None:
    """Return ``Integer.valueOf`` (32 bits) or ``Long.valueOf`` (64); None if it throws.

    Valid are an optional sign and digits of any script, without blanks, in range.
    """
    if not text.isascii():
        text = "".join(map(_ascii_digit, text))
    return java_integer(text, bits)


def _ascii_digit(character: str) -> str:
    """Return a digit of any script as ASCII, up to U+FFFF only, as Java reads UTF-16 units."""
    if character > _LAST_SINGLE_UNIT:
        return character
    digit = unicodedata.decimal(character, None)
    return character if digit is None else str(digit)


def parse_double(text: str) -> float | None:
    """Return ``Double.valueOf``; None if it throws.

    Valid are surrounding blanks, ``1d``, ``5.``, ``0x1p3``, ``NaN`` and ``-Infinity``; invalid are
    ``inf``, ``1_0``, ``0x10`` and digits of other scripts.
    """
    text = text.strip(_JAVA_TRIM)
    found = _DECIMAL.fullmatch(text)
    if found:
        return float(found[1])
    found = _NAMED.fullmatch(text)
    if found:
        return math.nan if found[2] == "NaN" else float(found[1] + "inf")
    found = _HEXADECIMAL.fullmatch(text)
    if found is None:
        return None
    try:
        number = float.fromhex(found[2])
    except OverflowError:
        number = math.inf
    return -number if found[1] == "-" else number


def double_order(number: float) -> int:
    """Return a key that orders as ``Double.compare``: -0.0 before 0.0, all NaN equal and last."""
    number = math.nan if math.isnan(number) else number  # Java has one NaN
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return bits if bits >= 0 else bits ^ 0x7FFFFFFFFFFFFFFF
