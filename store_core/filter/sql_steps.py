"""What a SQL filter does, as steps on a stack.

An expression of any depth is a flat list: each step takes its operands off the stack and puts its
result there, so that neither evaluator calls itself. ``a > 5 AND b IN ('x')``::

    LOAD a, PUSH 5, COMPARE >, LOAD b, IN {x}, AND

All operands are evaluated. That a failure on the right of a decided AND or OR does not count, as
in Java, is the rule of those steps: failures are values like TRUE, FALSE and NULL.
"""

from __future__ import annotations

from typing import NamedTuple, Union

Constant = Union[str, int, float, bool, None]
"""Java's Integer and Long are both int here: a Java Integer is an int of at most 31 bits."""

LOAD = "load"  # argument: a property's name
PUSH = "push"  # argument: a constant
CAST = "cast"  # a property where a truth value must be: FALSE, or NULL if it is absent
NOT = "not"
NEGATE = "negate"  # of a truth value: NULL
COMPARE = "compare"  # argument: > >= < <=
EQUAL = "equal"
IS_NULL = "is null"
BETWEEN = "between"  # value, low, high
OUTSIDE = "outside"
IN = "in"  # argument: frozenset of texts
SEARCH = "search"  # argument: (CONTAINS or its like, is it negated, what is looked for)
AND = "and"
OR = "or"

ARITY = {
    **dict.fromkeys((LOAD, PUSH), 0),
    **dict.fromkeys((CAST, NOT, NEGATE, IS_NULL, IN, SEARCH), 1),
    **dict.fromkeys((COMPARE, EQUAL, AND, OR), 2),
    **dict.fromkeys((BETWEEN, OUTSIDE), 3),
}
"""How many values a step takes off the stack."""

_MAX_INTEGER = (1 << 31) - 1
INTEGER_BITS, LONG_BITS = 32, 64


class Search(NamedTuple):
    """The argument of a step SEARCH."""

    word: str
    negated: bool
    text: str


class Step(NamedTuple):
    """One step: what, and with which argument."""

    operation: str
    argument: object = None


def integer_bits(number: int) -> int:
    """Return the width of a constant's Java type, with which texts beside it are read.

    The type is chosen before the minus: 2147483648 is a Long, and so is -2147483648.
    Source: RocketMQ ``ConstantExpression.createFromDecimal``.
    """
    return INTEGER_BITS if abs(number) <= _MAX_INTEGER else LONG_BITS
