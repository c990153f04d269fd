# SPDX-License-Identifier: Apache-2.0
"""A SQL filter as steps of a stack machine.

An expression of any depth is a flat list: each step pops its operands off the stack and pushes its
result, so that neither evaluator is recursive. ``a > 5 AND b IN ('x')``::

    LOAD a, PUSH 5, COMPARE >, LOAD b, IN {x}, AND

All operands are evaluated. Failures are values like TRUE, FALSE and NULL; the steps AND and OR
ignore a failure on the right if the left decides, as Java does.
"""

from __future__ import annotations

from typing import NamedTuple, Union

Constant = Union[str, int, float, bool, None]
"""An int is Java's Integer if its magnitude has at most 31 bits, else a Long."""

LOAD = "load"  # argument: a property's name
PUSH = "push"  # argument: a constant
CAST = "cast"  # a property in place of a truth value: FALSE, or NULL if it is absent
NOT = "not"
NEGATE = "negate"  # turns a truth value into NULL
COMPARE = "compare"  # argument: > >= < <=
EQUAL = "equal"
IS_NULL = "is null"
BETWEEN = "between"  # value, low, high
OUTSIDE = "outside"
IN = "in"  # argument: frozenset of texts
SEARCH = "search"  # argument: a `Search`
AND = "and"
OR = "or"

ARITY = {
    **dict.fromkeys((LOAD, PUSH), 0),
    **dict.fromkeys((CAST, NOT, NEGATE, IS_NULL, IN, SEARCH), 1),
    **dict.fromkeys((COMPARE, EQUAL, AND, OR), 2),
    **dict.fromkeys((BETWEEN, OUTSIDE), 3),
}
"""How many values a step pops off the stack."""

_MAX_INTEGER = (1 << 31) - 1
INTEGER_BITS, LONG_BITS = 32, 64


class Search(NamedTuple):
    """The argument of a step SEARCH."""

    word: str
    negated: bool
    text: str


class Step(NamedTuple):
    """One step: an operation and its argument."""

    operation: str
    argument: object = None


def integer_bits(number: int) -> int:
    """Return the bits of a constant's Java type, which texts compared with it are parsed as.

    The type is chosen without the minus: 2147483648 is a Long, and so is -2147483648.
    Source: RocketMQ ``ConstantExpression.createFromDecimal``.
    """
    return INTEGER_BITS if abs(number) <= _MAX_INTEGER else LONG_BITS
