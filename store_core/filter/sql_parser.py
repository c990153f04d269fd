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

Source: RocketMQ ``SelectorParser.jj`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store_core.filter import sql_steps as steps
from store_core.filter.sql_step_writer import LITERALS, StepWriter
from store_core.filter.sql_tokens import SEARCH_WORDS, Token, Tokens, search_words

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_NESTING = 1000
"""Open parentheses and prefixes at one place.

RocketMQ's limit is the stack of the thread that reads: 1 MiB is enough for 500 parentheses, or for
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


class ParsedSql(NamedTuple):
    """What a text says.

    Attributes
    ----------
    ignored
        The first word that is ignored, and its place; None if the text ends there.
    """

    program: tuple[steps.Step, ...]
    stop: int
    ignored: Token | None


class _Open(NamedTuple):
    """What waits for an operand: a prefix, an operator, a range or a parenthesis."""

    word: str
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
        self._tokens = Tokens(text, dialect)
        self._writer = StepWriter(text)
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
        elif token.kind in LITERALS:
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
        """Read up to the next place for an operand; False where the expression ends."""
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
        """Read ``[NOT] BETWEEN``, ``IN (…)`` or ``CONTAINS …``; True where an operand follows."""
        negated = self._took_not()
        token = self._tokens.next
        if token.kind not in _COMPARISON_WORDS - {"NOT"}:
            raise self._writer.error(f"{_found(token)} behind NOT", token, self._negatable)
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
        self._expect({"("}, "( and texts in quotes, as IN ('a', 'b')")
        texts = [self._text()]
        while self._expect({",", ")"}, ", or )").kind == ",":
            texts.append(self._text())
        return texts

    def _text(self) -> str:
        token = self._expect({"string"}, "a text in quotes, as 'x'")
        return str(self._writer.value_of(token))

    def _expect(self, kinds: Collection[str], expected: str) -> Token:
        token = self._tokens.next
        if token.kind not in kinds:
            raise self._writer.error(_found(token), token, expected)
        return self._tokens.take()

    def _waits_for(self, *words: str) -> bool:
        return bool(self._open) and self._open[-1].word in words

    def _complete(self) -> None:
        """Write what waits for no more than the operand that is now complete."""
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
        """Write the open operators of a level and above, the last one first."""
        while self._open and _LEVELS.get(self._open[-1].word, _LOWEST_LEVEL - 1) >= level:
            word = self._open.pop().word
            if word in _LOGIC:
                self._writer.combine(word)
            else:
                self._writer.equal(word)


def _found(token: Token) -> str:
    return f"found {token.text}" if token.text else "the text ends"
