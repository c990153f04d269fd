# SPDX-License-Identifier: Apache-2.0
"""Parses RocketMQ's SQL92 into steps.

::

    or    := and (OR and)*
    and   := equal (AND equal)*
    equal := comp ('=' comp | '<>' comp | IS [NOT] NULL)*
    comp  := unary ( ('>'|'>='|'<'|'<=') unary | [NOT] (CONTAINS|STARTSWITH|ENDSWITH) text
                   | [NOT] BETWEEN unary AND unary | [NOT] IN '(' text (',' text)* ')' )*
    unary := ('+'|'-'|NOT) unary | text | number | TRUE | FALSE | NULL | property | '(' or ')'

NOT binds tighter than any comparison: ``NOT a = 5`` is ``(NOT a) = 5``. Text after a complete
expression is not read, except its first word, which has to be a valid token.

The parser has a list of open operators instead of recursion, so that too deep a text is a proper
error, whatever the stack. The step writer refuses operands that RocketMQ refuses although its
grammar allows them.

Source: RocketMQ ``SelectorParser.jj`` (release 5.3.3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from store_core.codec.java_string import java_integer
from store_core.errors import FilterSyntaxError
from store_core.filter import sql_steps as steps
from store_core.filter.sql_tokens import SEARCH_WORDS, Token, Tokens, search_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MAX_NESTING = 1000
"""Most parentheses and prefixes open at one place.

RocketMQ's limit is the stack of the parsing thread: 1 MiB is enough for 500 parentheses, or for
1,000 once the JVM has compiled the parser.
"""
_ORDERS = (">", ">=", "<", "<=")
_PREFIXES = ("+", "-", "NOT")
_RANGE_LOW, _RANGE_HIGH = "BETWEEN", "BETWEEN AND"
_LEVELS = {"OR": 1, "AND": 2, "=": 3, "<>": 3, **dict.fromkeys(_ORDERS, 4)}
_LOWEST_LEVEL, _EQUAL_LEVEL, _COMPARISON_LEVEL = 1, 3, 4
_LOGIC = ("AND", "OR")
_COMPARISON_WORDS = {"NOT", "BETWEEN", "IN", *SEARCH_WORDS}
_OPERAND = "a property, a number, a text in quotes, NOT or ("
_PROPERTY, _LITERAL, _NEGATED, _TRUTH, _NOTHING = (
    "property",
    "literal",
    "negated literal",
    "truth value",
    "negated truth value",
)
_WORD_VALUES = {"TRUE": True, "FALSE": False, "NULL": None}
_LITERALS = ("string", "decimal", "float", *_WORD_VALUES)
"""The kinds of tokens that are values."""


class ParsedSql(NamedTuple):
    """The result of parsing a text.

    Attributes
    ----------
    ignored
        The first ignored token; None if the text ends with the expression.
    """

    program: tuple[steps.Step, ...]
    stop: int
    ignored: Token | None


class _Open(NamedTuple):
    """A prefix, operator, range or parenthesis that waits for an operand."""

    word: str
    negated: bool = False


def parse_sql(text: str, dialect: int) -> ParsedSql:
    """Return the steps of a filter.

    Raises
    ------
    FilterSyntaxError
        RocketMQ refuses the text, or its nesting exceeds `MAX_NESTING`.
    """
    return _Parser(text, dialect).parse()


class _Parser:
    def __init__(self, text: str, dialect: int) -> None:
        self._tokens = Tokens(text, dialect)
        self._writer = _StepWriter(text)
        self._negatable = ", ".join(["BETWEEN", "IN", *search_words(dialect)])
        self._open: list[_Open] = []
        self._nesting = self._parentheses = 0

    def parse(self) -> ParsedSql:
        self._operand()
        while self._operator():
            self._operand()
        self._reduce(_LOWEST_LEVEL)
        program, rest = self._writer.finish(), self._tokens.next
        return ParsedSql(program, self._tokens.last_stop, None if rest.kind == "end" else rest)

    def _operand(self) -> None:
        """Read prefixes and opening parentheses, then a property or a literal."""
        while self._tokens.next.kind in {*_PREFIXES, "("}:
            self._nest(self._tokens.take())
        token = self._tokens.next
        if token.kind == "name":
            self._writer.load(token)
        elif token.kind in _LITERALS:
            self._writer.push(token)
        else:
            raise self._writer.error(_found(token), token, _OPERAND)
        self._tokens.take()
        self._complete()

    def _nest(self, token: Token) -> None:
        self._nesting += 1
        self._parentheses += token.kind == "("
        if self._nesting > MAX_NESTING:
            raise self._writer.error(
                f"nested deeper than {MAX_NESTING}", token, "fewer parentheses and prefixes"
            )
        self._open.append(_Open(token.kind))

    def _operator(self) -> bool:
        """Read up to the next place for an operand; return False if the expression ends."""
        level = _COMPARISON_LEVEL
        while True:
            if self._waits_for(_RANGE_LOW):
                self._expect({"AND"}, "AND and the upper bound of BETWEEN")
                self._open[-1] = self._open[-1]._replace(word=_RANGE_HIGH)
                return True
            token = self._tokens.next
            if _LEVELS.get(token.kind, level + 1) <= level:
                self._binary(self._tokens.take().kind)
                return True
            if token.kind == "IS":
                self._is_null()
                level = _EQUAL_LEVEL
            elif token.kind == ")" and self._parentheses:
                self._close()
                level = _COMPARISON_LEVEL
            elif token.kind in _COMPARISON_WORDS and level == _COMPARISON_LEVEL:
                if self._comparison():
                    return True
            elif self._parentheses:
                raise self._writer.error(_found(token), token, "an operator or )")
            else:
                return False

    def _binary(self, word: str) -> None:
        self._reduce(_LEVELS[word])
        if word in _LOGIC:
            self._writer.cast()
        self._open.append(_Open(word))

    def _is_null(self) -> None:
        self._tokens.take()
        negated = self._took_not()
        self._expect({"NULL"}, "NULL" if negated else "NULL or NOT NULL")
        self._reduce(_EQUAL_LEVEL)
        self._writer.is_null(negated)

    def _close(self) -> None:
        self._reduce(_LOWEST_LEVEL)
        self._tokens.take()
        self._open.pop()
        self._nesting -= 1
        self._parentheses -= 1
        self._complete()

    def _comparison(self) -> bool:
        """Read ``[NOT] BETWEEN``, ``IN (…)`` or ``CONTAINS …``; True if an operand follows."""
        negated = self._took_not()
        token = self._tokens.next
        if token.kind not in _COMPARISON_WORDS - {"NOT"}:
            raise self._writer.error(f"{_found(token)} after NOT", token, self._negatable)
        self._tokens.take()
        if token.kind == "BETWEEN":
            self._open.append(_Open(_RANGE_LOW, negated))
            return True
        if token.kind == "IN":
            self._writer.is_in(self._texts(), negated, token)
        else:
            self._writer.search(steps.Search(token.kind, negated, self._text()))
        return False

    def _took_not(self) -> bool:
        found = self._tokens.next.kind == "NOT"
        if found:
            self._tokens.take()
        return found

    def _texts(self) -> list[str]:
        self._expect({"("}, "( and texts in quotes, such as IN ('a', 'b')")
        texts = [self._text()]
        while self._expect({",", ")"}, ", or )").kind == ",":
            texts.append(self._text())
        return texts

    def _text(self) -> str:
        token = self._expect({"string"}, "a text in quotes, such as 'x'")
        return str(self._writer.value_of(token))

    def _expect(self, kinds: Collection[str], expected: str) -> Token:
        token = self._tokens.next
        if token.kind not in kinds:
            raise self._writer.error(_found(token), token, expected)
        return self._tokens.take()

    def _waits_for(self, *words: str) -> bool:
        return bool(self._open) and self._open[-1].word in words

    def _complete(self) -> None:
        """Write the open operators that only waited for the operand that is now complete."""
        while self._waits_for(*_PREFIXES):
            self._nesting -= 1
            word = self._open.pop().word
            if word == "-":
                self._writer.negate()
            elif word == "NOT":
                self._writer.invert()
        if self._waits_for(*_ORDERS):
            self._writer.compare(self._open.pop().word)
        elif self._waits_for(_RANGE_HIGH):
            self._writer.between(self._open.pop().negated)

    def _reduce(self, level: int) -> None:
        """Write the open operators of a level and above, last one first."""
        while self._open and _LEVELS.get(self._open[-1].word, _LOWEST_LEVEL - 1) >= level:
            word = self._open.pop().word
            if word in _LOGIC:
                self._writer.combine(word)
            else:
                self._writer.equal(word)


def _found(token: Token) -> str:
    return f"found {token.text}" if token.text else "the text ends"


# Source: RocketMQ ``ConstantExpression``, ``ComparisonExpression.create…`` and ``check…``,
# ``UnaryExpression``, ``SelectorParser.asBooleanExpression`` (release 5.3.3).
class _Operand(NamedTuple):
    """A value whose steps are written; ``value`` is a literal's, otherwise None.

    RocketMQ's checks do not see a literal after a minus. A minus before anything other than a
    number gives NULL, also before a truth value, which is evaluated nevertheless.
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


class _StepWriter:
    """Writes steps in postfix order: operands, then their operator.

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
        """Return the error for a token."""
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
        """Return the value of a literal, a token of one of the kinds in `_LITERALS`."""
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
            "a number with a decimal point or an exponent must not be 0 or infinite",
            token,
            "0 without a decimal point" if number == 0 else "at most 1.7976931348623157E308",
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
        """Require a truth value as the last operand; a property is cast to one."""
        operand = self._operands[-1]
        if operand.kind == _PROPERTY:
            self._finish_one(steps.CAST)
        elif operand.kind != _TRUTH and not operand.is_literal_truth:
            literal = operand.kind == _LITERAL
            what = f"{operand.token.text} is" if literal else "a value with a minus is"
            raise self.error(
                f"{what} neither true nor false", operand.token, "a condition, such as a > 5"
            )

    def combine(self, word: str) -> None:
        """Write AND or OR; `cast` was called for the left operand before the right was written."""
        self.cast()
        self._finish_two(steps.AND if word == "AND" else steps.OR)

    def compare(self, symbol: str) -> None:
        """Write ``>``, ``>=``, ``<`` or ``<=``."""
        self._check_numbers(self._operands[-2:], symbol)
        self._finish_two(steps.COMPARE, symbol)

    def between(self, negated: bool) -> None:
        """Write BETWEEN for the last three operands: value, lower and upper bound."""
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
                    f"{what} cannot be an operand of {word}",
                    operand.token,
                    "a number or a property",
                )

    def equal(self, symbol: str) -> None:
        """Write ``=`` or ``<>``."""
        left, right = self._operands[-2:]
        for operand in (left, right):
            if operand.kind == _LITERAL and operand.value is None:
                raise self.error(
                    f"NULL cannot be an operand of {symbol}",
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
        """Write IN; ``token`` is its word, for the error."""
        if self._operands[-1].kind != _PROPERTY:
            raise self.error(
                "IN after something other than a property", token, "a property before IN"
            )
        self._finish_one(steps.IN, frozenset(texts))
        self._emit_not(negated)

    def search(self, search: steps.Search) -> None:
        """Write CONTAINS, STARTSWITH or ENDSWITH."""
        self._finish_one(steps.SEARCH, search)

    def _finish_two(self, operation: str, argument: object = None) -> None:
        self._operands.pop()
        self._finish_one(operation, argument)

    def _finish_one(self, operation: str, argument: object = None) -> None:
        """Write a step that turns the last operand into a truth value."""
        self._emit(operation, argument)
        self._operands[-1] = _Operand(_TRUTH, None, self._operands[-1].token)

    def _emit(self, operation: str, argument: object = None) -> None:
        self._program.append(steps.Step(operation, argument))

    def _emit_not(self, negated: bool) -> None:
        if negated:
            self._emit(steps.NOT)


def _is_empty_range(low: _Operand, high: _Operand) -> bool:
    """Return whether two literal bounds contradict; RocketMQ does not check ones with a minus."""
    if low.kind != _LITERAL or high.kind != _LITERAL:
        return False
    first, last = low.value, high.value
    if isinstance(first, float) or isinstance(last, float):
        return float(last) < float(first)  # type: ignore[arg-type] # both are numbers
    return last < first  # type: ignore[operator] # both are whole numbers
