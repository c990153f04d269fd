"""RocketMQ's SQL92: from a text to steps.

::

    or    := and (OR and)*
    and   := equal (AND equal)*
    equal := comp ('=' comp | '<>' comp | IS [NOT] NULL)*
    comp  := unary ( ('>'|'>='|'<'|'<=') unary | [NOT] (CONTAINS|STARTSWITH|ENDSWITH) text
                   | [NOT] BETWEEN unary AND unary | [NOT] IN '(' text (',' text)* ')' )*
    unary := ('+'|'-'|NOT) unary | text | number | TRUE | FALSE | NULL | property | '(' or ')'

NOT binds tighter than any comparison: ``NOT a = 5`` is ``(NOT a) = 5``. What follows a complete
expression is not read, but its first word must be one.

The parser keeps what is open on a list instead of calling itself, so that a deep text is an error
that can be told, on any stack.

Source: RocketMQ ``SelectorParser.jj``, ``ComparisonExpression``, ``UnaryExpression`` (5.3.3).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from store_core.codec.java_string import java_integer
from store_core.errors import FilterSyntaxError
from store_core.filter import sql_steps as steps
from store_core.filter.sql_tokens import SEARCH_WORDS, Token, Tokens, search_words

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_NESTING = 1000
"""Open parentheses and prefixes at one place.

RocketMQ's limit is the stack of the thread that reads: 1 MiB is enough for 500 parentheses, or for
1,000 once the JVM has compiled the parser.
"""

_PROPERTY, _LITERAL, _NUMBER, _TRUTH, _NOTHING = "property", "literal", "number", "truth", "nothing"
_ORDERS = (">", ">=", "<", "<=")
_PREFIXES = ("+", "-", "NOT")
_RANGE_LOW, _RANGE_HIGH = "BETWEEN", "BETWEEN AND"

_LEVELS = {"OR": 1, "AND": 2, "=": 3, "<>": 3, **dict.fromkeys(_ORDERS, 4)}
_EQUAL_LEVEL, _COMPARISON_LEVEL = 3, 4
_OPERAND = "a property, a number, a text in quotes, NOT or ("


class ParsedSql(NamedTuple):
    """What a text says.

    Attributes
    ----------
    program
        The steps.
    stop
        Where RocketMQ stops reading, in characters: what follows is ignored.
    ignored
        The first word that is ignored, and its place; None if the text ends there.
    """

    program: tuple[steps.Step, ...]
    stop: int
    ignored: Token | None


class _Operand(NamedTuple):
    """A value whose steps are written.

    ``kind``: a property; a literal; a number with a minus; a truth value, known only from messages;
    or nothing, which is NULL. RocketMQ's checks do not see a literal behind a minus.
    """

    kind: str
    value: steps.Constant
    token: Token

    @property
    def is_literal_truth(self) -> bool:
        return self.kind == _LITERAL and (self.value is None or isinstance(self.value, bool))


class _Open(NamedTuple):
    """What waits for an operand: a prefix, an operator, a range or a parenthesis."""

    word: str
    token: Token
    negated: bool = False


def parse_sql(text: str, dialect: int) -> ParsedSql:
    """Return the steps of a filter.

    Raises
    ------
    FilterSyntaxError
        RocketMQ refuses it, or its nesting is over `MAX_NESTING`.
    """
    return _Parser(text, dialect).parse()


class _Parser:
    def __init__(self, text: str, dialect: int) -> None:
        self._text = text
        self._negatable = ", ".join(["BETWEEN", "IN", *search_words(dialect)])
        self._tokens = Tokens(text, dialect)
        self._program: list[steps.Step] = []
        self._operands: list[_Operand] = []
        self._open: list[_Open] = []
        self._nesting = self._parentheses = 0
        self._levels: list[int] = []

    def parse(self) -> ParsedSql:
        self._operand()
        while self._operator():
            self._operand()
        self._reduce(0)
        self._truth(self._operands.pop())
        ignored = self._tokens.next if self._tokens.next.kind != "end" else None
        return ParsedSql(tuple(self._program), self._tokens.last_stop, ignored)

    def _operand(self) -> None:
        """Read prefixes and opening parentheses, then a property or a literal."""
        while True:
            token = self._tokens.next
            if token.kind in _PREFIXES or token.kind == "(":
                self._tokens.take()
                self._nest(token)
            else:
                break
        if token.kind == "name":
            self._emit(steps.LOAD, token.text)
            self._operands.append(_Operand(_PROPERTY, token.text, token))
        else:
            value = self._literal(token)
            self._emit(steps.PUSH, value)
            self._operands.append(_Operand(_LITERAL, value, token))
        self._tokens.take()
        self._complete()

    def _nest(self, token: Token) -> None:
        self._nesting += 1
        self._parentheses += token.kind == "("
        if self._nesting > MAX_NESTING:
            raise self._error(
                f"nested deeper than {MAX_NESTING}", token, "fewer parentheses and prefixes"
            )
        self._open.append(_Open(token.kind, token))

    def _literal(self, token: Token) -> steps.Constant:
        if token.kind == "string":
            return token.text[1:-1].replace("''", "'")
        if token.kind == "decimal":
            integer = java_integer(token.text.rstrip("lL"), steps.LONG_BITS)
            if integer is None:
                raise self._error("the number is too large", token, f"at most {2**63 - 1}")
            return integer
        if token.kind == "float":
            number = float(token.text)
            if not 0 < number < math.inf:
                raise self._error(
                    "a number with a point or an exponent may not be 0 nor infinite",
                    token,
                    "0 without a point" if number == 0 else "at most 1.7976931348623157E308",
                )
            return number
        if token.kind in _WORD_VALUES:
            return _WORD_VALUES[token.kind]
        raise self._error(_found(token), token, _OPERAND)

    def _operator(self) -> bool:
        """Read up to the next place for an operand; False where the expression ends."""
        level = _COMPARISON_LEVEL
        while True:
            if self._open and self._open[-1].word == _RANGE_LOW:
                return self._between_and()
            token = self._tokens.next
            kind = token.kind
            if kind in _LEVELS and _LEVELS[kind] <= level:
                self._tokens.take()
                self._binary(token)
                return True
            if kind == "IS":
                self._is_null()
                level = _EQUAL_LEVEL
            elif kind == ")" and self._parentheses:
                self._close()
                level = _COMPARISON_LEVEL
            elif level == _COMPARISON_LEVEL and self._is_comparison(kind):
                if self._comparison():
                    return True
            elif self._parentheses:
                raise self._error(_found(token), token, "an operator or )")
            else:
                return False

    def _binary(self, token: Token) -> None:
        self._reduce(_LEVELS[token.kind])
        if token.kind in {"AND", "OR"}:
            self._operands.append(self._truth(self._operands.pop()))
        self._open.append(_Open(token.kind, token))

    def _between_and(self) -> bool:
        token = self._tokens.next
        if token.kind != "AND":
            raise self._error(_found(token), token, "AND and the upper bound of BETWEEN")
        self._tokens.take()
        self._open[-1] = self._open[-1]._replace(word=_RANGE_HIGH)
        return True

    def _is_null(self) -> None:
        self._tokens.take()
        negated = self._tokens.next.kind == "NOT"
        if negated:
            self._tokens.take()
        token = self._tokens.next
        if token.kind != "NULL":
            expected = "NULL" if negated else "NULL or NOT NULL"
            raise self._error(_found(token), token, expected)
        self._tokens.take()
        self._reduce(_EQUAL_LEVEL)
        self._emit(steps.IS_NULL)
        self._emit_not(negated)
        self._result(self._operands.pop())

    def _close(self) -> None:
        self._reduce(0)
        self._tokens.take()
        self._open.pop()
        self._nesting -= 1
        self._parentheses -= 1
        self._complete()

    def _is_comparison(self, kind: str) -> bool:
        return kind in {"NOT", "BETWEEN", "IN"} or kind in SEARCH_WORDS

    def _comparison(self) -> bool:
        """Read ``[NOT] BETWEEN``, ``IN (…)`` or ``CONTAINS …``; True where an operand follows."""
        negated = self._tokens.next.kind == "NOT"
        if negated:
            self._tokens.take()
        token = self._tokens.next
        if token.kind == "BETWEEN":
            self._tokens.take()
            self._open.append(_Open(_RANGE_LOW, token, negated))
            return True
        if token.kind == "IN":
            self._in(negated)
        elif token.kind in SEARCH_WORDS:
            self._tokens.take()
            search = steps.Search(token.kind, negated, self._text_literal())
            self._emit(steps.SEARCH, search)
            self._result(self._operands.pop())
        else:
            raise self._error(f"{_found(token)} behind NOT", token, self._negatable)
        return False

    def _in(self, negated: bool) -> None:
        token = self._tokens.take()
        self._expect({"("}, "( and texts in quotes, as IN ('a', 'b')")
        texts = [self._text_literal()]
        while self._expect({",", ")"}, ", or )").kind == ",":
            texts.append(self._text_literal())
        operand = self._operands.pop()
        if operand.kind != _PROPERTY:
            raise self._error(
                "IN behind something that is no property", token, "a property before IN"
            )
        self._emit(steps.IN, frozenset(texts))
        self._emit_not(negated)
        self._result(operand)

    def _text_literal(self) -> str:
        token = self._expect({"string"}, "a text in quotes, as 'x'")
        return str(self._literal(token))

    def _expect(self, kinds: Collection[str], expected: str) -> Token:
        token = self._tokens.next
        if token.kind not in kinds:
            raise self._error(_found(token), token, expected)
        return self._tokens.take()

    def _complete(self) -> None:
        """Apply what waits for no more than the operand that is now complete."""
        while self._open and self._open[-1].word in _PREFIXES:
            self._nesting -= 1
            self._prefix(self._open.pop())
        if self._open and self._open[-1].word in _ORDERS:
            self._order(self._open.pop())
        elif self._open and self._open[-1].word == _RANGE_HIGH:
            self._range(self._open.pop())

    def _reduce(self, level: int) -> None:
        """Apply the open operators of a level and above."""
        while self._open and _LEVELS.get(self._open[-1].word, -1) >= max(level, 1):
            opened = self._open.pop()
            right, left = self._operands.pop(), self._operands.pop()
            if opened.word in {"AND", "OR"}:
                self._truth(right)
                self._emit(steps.AND if opened.word == "AND" else steps.OR)
            else:
                self._check_equal(left, right, opened)
                self._emit(steps.EQUAL)
                self._emit_not(opened.word == "<>")
            self._result(left)

    def _prefix(self, opened: _Open) -> None:
        operand = self._operands.pop()
        if opened.word == "NOT":
            self._truth(operand)
            self._emit(steps.NOT)
            operand = _Operand(_TRUTH, None, operand.token)
        elif opened.word == "-":
            operand = self._negated(operand)
        self._operands.append(operand)

    def _negated(self, operand: _Operand) -> _Operand:
        """Put a minus before an operand: of all that is no number it makes NULL."""
        if operand.kind in {_TRUTH, _NOTHING}:
            self._emit(steps.NEGATE)
            return operand._replace(kind=_NOTHING)
        value = operand.value
        if operand.kind == _PROPERTY or isinstance(value, (str, bool)) or value is None:
            value = None
        else:
            value = -value
        self._program[-1] = steps.Step(steps.PUSH, value)
        return operand._replace(kind=_NUMBER, value=value)

    def _order(self, opened: _Open) -> None:
        right, left = self._operands.pop(), self._operands.pop()
        self._check_order(left, opened)
        self._check_order(right, opened)
        self._emit(steps.COMPARE, opened.word)
        self._result(left)

    def _range(self, opened: _Open) -> None:
        high, low, value = (self._operands.pop() for _ in range(3))
        for operand in (value, low, high):
            self._check_order(operand, opened)
        if not opened.negated and _is_empty_range(low, high):
            raise self._error(
                f"the upper bound of BETWEEN is below {low.value}",
                high.token,
                f"{low.value} or more",
            )
        self._emit(steps.OUTSIDE if opened.negated else steps.BETWEEN)
        self._result(value)

    def _check_order(self, operand: _Operand, opened: _Open) -> None:
        """Refuse what RocketMQ refuses beside > >= < <= and BETWEEN."""
        number = isinstance(operand.value, (int, float)) and not isinstance(operand.value, bool)
        if operand.kind == _TRUTH or (operand.kind == _LITERAL and not number):
            what = "a condition" if operand.kind == _TRUTH else operand.token.text
            where = "BETWEEN" if opened.word == _RANGE_HIGH else opened.word
            raise self._error(
                f"{what} cannot be compared by {where}", operand.token, "a number or a property"
            )

    def _check_equal(self, left: _Operand, right: _Operand, opened: _Open) -> None:
        for operand in (left, right):
            if operand.kind == _LITERAL and operand.value is None:
                raise self._error(
                    f"NULL cannot be compared by {opened.word}",
                    operand.token,
                    "IS NULL or IS NOT NULL",
                )
        if left.is_literal_truth and right.kind == _LITERAL and not right.is_literal_truth:
            raise self._error(
                f"{left.token.text} cannot be compared with {right.token.text}",
                right.token,
                "TRUE, FALSE or a property",
            )

    def _truth(self, operand: _Operand) -> _Operand:
        """Return the operand as a truth value: it is one, or a property that is cast to one."""
        if operand.kind == _PROPERTY:
            self._emit(steps.CAST)
            return operand._replace(kind=_TRUTH)
        if operand.kind == _TRUTH or operand.is_literal_truth:
            return operand
        what = f"{operand.token.text} is" if operand.kind == _LITERAL else "a value with a minus is"
        raise self._error(f"{what} neither true nor false", operand.token, "a condition, as a > 5")

    def _result(self, operand: _Operand) -> None:
        self._operands.append(_Operand(_TRUTH, None, operand.token))

    def _emit(self, operation: str, argument: object = None) -> None:
        self._program.append(steps.Step(operation, argument))

    def _emit_not(self, negated: bool) -> None:
        if negated:
            self._emit(steps.NOT)

    def _error(self, reason: str, token: Token, expected: str) -> FilterSyntaxError:
        return FilterSyntaxError(reason, self._text, token.start, token.text, expected)


_WORD_VALUES = {"TRUE": True, "FALSE": False, "NULL": None}


def _found(token: Token) -> str:
    return f"found {token.text}" if token.text else "the text ends"


def _is_empty_range(low: _Operand, high: _Operand) -> bool:
    """Return whether two literal bounds contradict; RocketMQ does not look behind a minus."""
    if low.kind != _LITERAL or high.kind != _LITERAL:
        return False
    first, last = low.value, high.value
    if isinstance(first, float) or isinstance(last, float):
        return float(last) < float(first)  # type: ignore[arg-type] # both are numbers
    return last < first  # type: ignore[operator] # both are whole numbers
