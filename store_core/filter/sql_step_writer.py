"""The steps of a SQL filter while it is read, and what RocketMQ refuses although its grammar fits.

Source: RocketMQ ``ConstantExpression``, ``ComparisonExpression.create…`` and ``check…``,
``UnaryExpression``, ``SelectorParser.asBooleanExpression`` (release 5.3.3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from store_core.codec.java_string import java_integer
from store_core.errors import FilterSyntaxError
from store_core.filter import sql_steps as steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.filter.sql_tokens import Token

_PROPERTY, _LITERAL, _NEGATED, _TRUTH, _NOTHING = (
    "property",
    "literal",
    "negated literal",
    "truth value",
    "negated truth value",
)
_WORD_VALUES = {"TRUE": True, "FALSE": False, "NULL": None}
LITERALS = ("string", "decimal", "float", *_WORD_VALUES)
"""The kinds of words that are values."""


class _Operand(NamedTuple):
    """A value whose steps are written; ``value`` is that of a literal, NULL otherwise.

    RocketMQ's checks do not see a literal behind a minus. A minus before what is no number makes
    NULL, also of a truth value, which is evaluated nevertheless.
    """

    kind: str
    value: steps.Constant
    token: Token

    @property
    def is_literal_truth(self) -> bool:
        return self.kind == _LITERAL and (self.value is None or isinstance(self.value, bool))

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, (int, float)) and not isinstance(self.value, bool)


class StepWriter:
    """Writes steps in the order in which operands and then their operators become complete.

    Every method raises `FilterSyntaxError` for operands that RocketMQ refuses.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._program: list[steps.Step] = []
        self._operands: list[_Operand] = []

    def finish(self) -> tuple[steps.Step, ...]:
        """Return all steps; the last operand is the result."""
        self.cast()
        return tuple(self._program)

    def error(self, reason: str, token: Token, expected: str) -> FilterSyntaxError:
        """Return the error for a word."""
        return FilterSyntaxError(reason, self._text, token.start, token.text, expected)

    def load(self, token: Token) -> None:
        """Write a property."""
        self._emit(steps.LOAD, token.text)
        self._operands.append(_Operand(_PROPERTY, None, token))

    def push(self, token: Token) -> None:
        """Write a literal."""
        value = self.value_of(token)
        self._emit(steps.PUSH, value)
        self._operands.append(_Operand(_LITERAL, value, token))

    def value_of(self, token: Token) -> steps.Constant:
        """Return the value of a literal, a word of one of the kinds `LITERALS`."""
        if token.kind == "string":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "decimal":
            integer = java_integer(token.text.rstrip("lL"), steps.LONG_BITS)
            if integer is None:
                raise self.error("the number is too large", token, f"at most {2**63 - 1}")
            return integer
        if token.kind == "float":
            return self._double_of(token)
        return _WORD_VALUES[token.kind]

    def _double_of(self, token: Token) -> float:
        number = float(token.text)
        if 0 < number < math.inf:
            return number
        raise self.error(
            "a number with a point or an exponent may not be 0 nor infinite",
            token,
            "0 without a point" if number == 0 else "at most 1.7976931348623157E308",
        )

    def negate(self) -> None:
        """Put a minus before the last operand."""
        operand = self._operands.pop()
        if operand.kind in {_TRUTH, _NOTHING}:
            self._emit(steps.NEGATE)
            self._operands.append(operand._replace(kind=_NOTHING))
            return
        value = operand.value
        negated = -value if isinstance(value, (int, float)) and operand.is_number else None
        self._program[-1] = steps.Step(steps.PUSH, negated)
        self._operands.append(operand._replace(kind=_NEGATED, value=negated))

    def invert(self) -> None:
        """Put NOT before the last operand."""
        self.cast()
        self._finish_one(steps.NOT)

    def cast(self) -> None:
        """Make a truth value of the last operand; a property becomes one."""
        operand = self._operands[-1]
        if operand.kind == _PROPERTY:
            self._finish_one(steps.CAST)
        elif operand.kind != _TRUTH and not operand.is_literal_truth:
            literal = operand.kind == _LITERAL
            what = f"{operand.token.text} is" if literal else "a value with a minus is"
            raise self.error(
                f"{what} neither true nor false", operand.token, "a condition, as a > 5"
            )

    def combine(self, word: str) -> None:
        """Write AND or OR; the left operand was cast before the right one was written."""
        self.cast()
        self._finish_two(steps.AND if word == "AND" else steps.OR)

    def compare(self, symbol: str) -> None:
        """Write ``>``, ``>=``, ``<`` or ``<=``."""
        self._check_numbers(self._operands[-2:], symbol)
        self._finish_two(steps.COMPARE, symbol)

    def between(self, negated: bool) -> None:
        """Write BETWEEN of the last three operands: value, lower and upper bound."""
        value, low, high = self._operands[-3:]
        self._check_numbers((value, low, high), "BETWEEN")
        if not negated and _is_empty_range(low, high):
            raise self.error(
                f"the upper bound of BETWEEN is below {low.value}",
                high.token,
                f"{low.value} or more",
            )
        self._operands.pop()
        self._finish_two(steps.OUTSIDE if negated else steps.BETWEEN)

    def _check_numbers(self, operands: Iterable[_Operand], word: str) -> None:
        for operand in operands:
            literal = operand.kind == _LITERAL
            if operand.kind == _TRUTH or (literal and not operand.is_number):
                what = operand.token.text if literal else "a condition"
                raise self.error(
                    f"{what} cannot be compared by {word}", operand.token, "a number or a property"
                )

    def equal(self, symbol: str) -> None:
        """Write ``=`` or ``<>``."""
        left, right = self._operands[-2:]
        for operand in (left, right):
            if operand.kind == _LITERAL and operand.value is None:
                raise self.error(
                    f"NULL cannot be compared by {symbol}",
                    operand.token,
                    "IS NULL or IS NOT NULL",
                )
        if left.is_literal_truth and right.kind == _LITERAL and not right.is_literal_truth:
            raise self.error(
                f"{left.token.text} cannot be compared with {right.token.text}",
                right.token,
                "TRUE, FALSE or a property",
            )
        self._finish_two(steps.EQUAL)
        self._emit_not(symbol == "<>")

    def is_null(self, negated: bool) -> None:
        """Write IS NULL."""
        self._finish_one(steps.IS_NULL)
        self._emit_not(negated)

    def is_in(self, texts: Iterable[str], negated: bool, token: Token) -> None:
        """Write IN, whose word is given for the error."""
        if self._operands[-1].kind != _PROPERTY:
            raise self.error(
                "IN behind something that is no property", token, "a property before IN"
            )
        self._finish_one(steps.IN, frozenset(texts))
        self._emit_not(negated)

    def search(self, search: steps.Search) -> None:
        """Write CONTAINS or its like."""
        self._finish_one(steps.SEARCH, search)

    def _finish_two(self, operation: str, argument: object = None) -> None:
        self._operands.pop()
        self._finish_one(operation, argument)

    def _finish_one(self, operation: str, argument: object = None) -> None:
        """Write a step that makes a truth value of the last operand."""
        self._emit(operation, argument)
        self._operands[-1] = _Operand(_TRUTH, None, self._operands[-1].token)

    def _emit(self, operation: str, argument: object = None) -> None:
        self._program.append(steps.Step(operation, argument))

    def _emit_not(self, negated: bool) -> None:
        if negated:
            self._emit(steps.NOT)


def _is_empty_range(low: _Operand, high: _Operand) -> bool:
    """Return whether two literal bounds contradict; RocketMQ does not look behind a minus."""
    if low.kind != _LITERAL or high.kind != _LITERAL:
        return False
    first, last = low.value, high.value
    if isinstance(first, float) or isinstance(last, float):
        return float(last) < float(first)  # type: ignore[arg-type] # both are numbers
    return last < first  # type: ignore[operator] # both are whole numbers
