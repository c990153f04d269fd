# SPDX-License-Identifier: Apache-2.0
"""Random SQL filters and properties that reach odd corners of RocketMQ's language.

Only the choices of `random.Random` are used, so that hypothesis can make and shrink them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pyarrow as pa

from store_core import FilterEvaluationError, FilterSyntaxError, IgnoredInputWarning, SqlFilter

NAMES = ("a", "b", "c", "A", "_x$1", "TAGS")
_INTEGERS = """
0 1 5 10 42 007 2147483646 2147483647 2147483648 4294967296 9223372036854775807 5L 5l 0L 2147483648L
9223372036854775808 9007199254740992 9007199254740993 1234567890123456789
"""
_FLOATS = """
5. .5 5.5 5e0 5E3 1e-5 0.1 007.50 5.e+1 1.7976931348623157E308 1e309 4.9E-324 2e-324 0.0 0e0 .0 5e
9007199254740993.0 2147483647.0 5.5f 1e400
"""
_NUMBER_TEXTS = """
0 -0 00 1 4 5 6 +5 5.5 5. .5 . - + -- --5 5- -.5 -. 5,0 5L 5d 5F 1e3 1E+3 1e 1e400 -1e400 1e-400 42
007 0.0 -0.0 0.1 5e0 2147483647 2147483648 -2147483648 -2147483649 9223372036854775807
9223372036854775808 -9223372036854775808 -9223372036854775809 99999999999999999999
1234567890123456789 9007199254740993 9007199254740992 4.9E-324 1.7976931348623157E308 NaN -NaN nan
Infinity -Infinity inf 0x10 0x1p3 0X1.8P-1d 0x1p9999 -0x.8p1 1_0 ٥ ٥٥ ５ 𝟗 ² abc aab xaby false TrUe
"""
LITERAL_NUMBERS = (_INTEGERS + _FLOATS).split()
STRINGS = ("", "5", "x", "y", "true", "it's", "5.0", "größe", "ab", "b", "-5", "😀", "/* -- */")
LONG_NUMBERS = (
    *("0" * 30 + "5", "5" * 120, "0." + "0" * 120 + "1", "1" * 25 + ".5", "-" + "0" * 19),
    *("9" * 19, "-" + "9" * 19),
)
BLANK_NUMBERS = (" 5", "5 ", "\t5\n", "\x005", "\u00a05", "5 5", "\x00")
VALUES = (*STRINGS, *_NUMBER_TEXTS.split(), *LONG_NUMBERS, *BLANK_NUMBERS)
_ORDERS = ("<", "<=", ">", ">=")
_SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_BLANKS = (" ", " ", " ", "\t", "\n", "\r\n", "\f", "/**/", "/* a * / ** */", "--x\n", " -- '\r")
_WORDS = """
= <> < <= > >= NOT AND OR BETWEEN IN IS NULL TRUE FALSE CONTAINS STARTSWITH ENDSWITH LIKE != == ' "
( ) , + - a 5 5.5 'x' # * /* -- ö . e5 1.5.5 \0
"""
_SOUP = _WORDS.split()
_LETTERS = {True: "T", False: "F", None: "N"}


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


class Cases:
    """A maker of texts; `random` decides."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def chance(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def properties(self) -> dict[str, str]:
        """Each of the names is there or not; many values are numbers close to each other."""
        found = {}
        for name in NAMES:
            if not self.chance(4):
                found[name] = self.value()
        return found

    def value(self) -> str:
        if self.chance(3):
            return str(self._random.randrange(-3, 12))
        if self.chance(8):
            return self._random.choice(LITERAL_NUMBERS)
        return self._random.choice(VALUES)

    def expression(self) -> str:
        """A filter; one in four is damaged, one in twenty is a heap of words."""
        if self.chance(20):
            words = [self._random.choice(_SOUP) for _ in range(self._random.randrange(8))]
        else:
            words = self.condition(self._random.randrange(4))
            if self.chance(4):
                self._damage(words)
        return self._joined(words)

    def condition(self, depth: int) -> list[str]:
        """A term that mostly has a truth value."""
        if depth == 0:
            return self._random.choice(_SIMPLE)(self)
        inner = self.condition(depth - 1)
        kind = self._random.randrange(8)
        if kind == 0:
            return ["NOT", "(", *inner, ")"]
        if kind == 1:
            return ["(", *inner, ")"]
        if kind == 2:
            return ["(", *inner, ")", "IS", *self._negation(), "NULL"]
        if kind == 3:
            return self._oddly_used(["(", *inner, ")"])
        return [*inner, self._random.choice(("AND", "OR")), *self.condition(depth - 1)]

    def _oddly_used(self, inner: list[str]) -> list[str]:
        """A truth value in an unusual place."""
        kind = self._random.randrange(5)
        if kind == 0:
            return [*inner, self._equality(), *self._operand()]
        if kind == 1:
            return [*self._operand(), self._equality(), *inner]
        if kind == 2:
            return [*inner, *self._search()]
        if kind == 3:
            return [self._name(), self._random.choice((*_ORDERS, "=", "<>")), "-", *inner]
        return ["-", *inner, self._order(), *self._operand()]

    def _number_compared(self) -> list[str]:
        return [self._name(), self._order(), *self._number()]

    def _compared(self) -> list[str]:
        return [*self._operand(), self._order(), *self._operand()]

    def _name_equal(self) -> list[str]:
        return [self._name(), self._equality(), *self._operand()]

    def _equal(self) -> list[str]:
        return [*self._operand(), self._equality(), *self._operand()]

    def _number_between(self) -> list[str]:
        bounds = [*self._number(), "AND", *self._number()]
        return [*self._operand(), *self._negation(), "BETWEEN", *bounds]

    def _between(self) -> list[str]:
        bounds = [*self._operand(), "AND", *self._operand()]
        return [self._name(), *self._negation(), "BETWEEN", *bounds]

    def _in(self) -> list[str]:
        return [self._name(), *self._negation(), "IN", "(", *self._texts(), ")"]

    def _searched(self) -> list[str]:
        return [*self._operand(), *self._search()]

    def _null(self) -> list[str]:
        return [*self._operand(), "IS", *self._negation(), "NULL"]

    def _alone(self) -> list[str]:
        word = self._random.choice((self._name(), "TRUE", "FALSE", "NULL"))
        return [*self._negation(), word]

    def _negation(self) -> list[str]:
        return ["NOT"] if self.chance(3) else []

    def _order(self) -> str:
        return self._random.choice(_ORDERS)

    def _name(self) -> str:
        return self._random.choice(NAMES)

    def _equality(self) -> str:
        return self._random.choice(("=", "<>"))

    def _search(self) -> list[str]:
        return [
            *self._negation(),
            self._random.choice(_SEARCHES),
            quoted(self._random.choice(STRINGS)),
        ]

    def _texts(self) -> list[str]:
        texts = [quoted(self.value())]
        for _ in range(self._random.randrange(7)):
            texts += [",", quoted(self.value())]
        return texts

    def _number(self) -> list[str]:
        number = (
            str(self._random.randrange(10))
            if self.chance(2)
            else self._random.choice(LITERAL_NUMBERS)
        )
        sign = self._random.choice(("", "", "", "-", "+"))
        return [sign, number] if sign else [number]

    def _operand(self) -> list[str]:
        kind = self._random.randrange(8)
        if kind < 3:
            words = [self._name()]
        elif kind < 5:
            words = self._number()
        elif kind == 5:
            words = [quoted(self._random.choice(STRINGS))]
        elif kind == 6:
            words = [self._random.choice(("TRUE", "FALSE", "NULL"))]
        else:
            words = ["(", *self._operand(), ")"]
        while self.chance(6):
            words = [self._random.choice(("-", "+", "NOT")), *words]
        return words

    def _damage(self, words: list[str]) -> None:
        at = self._random.randrange(len(words) + 1)
        kind = self._random.randrange(3)
        if kind == 0 and at < len(words):
            del words[at]
        elif kind == 1 and at < len(words):
            words[at] = self._random.choice(_SOUP)
        else:
            words.insert(at, self._random.choice(_SOUP))

    def _joined(self, words: list[str]) -> str:
        """Put blanks between words, usually; keywords may be in any case."""
        text = ""
        for word in words:
            if not self.chance(12):
                text += self._random.choice(_BLANKS) if self.chance(3) else " "
            text += word.lower() if self.chance(8) and word.isalpha() and len(word) > 1 else word
        return text


_SIMPLE = (
    *(Cases._number_compared, Cases._number_compared, Cases._number_compared),
    *(Cases._compared, Cases._name_equal, Cases._equal, Cases._number_between, Cases._between),
    *(Cases._in, Cases._searched, Cases._null, Cases._alone),
)


EXAMPLES: tuple[tuple[str, Mapping[str, str], str], ...] = (
    # a lone property is no truth value
    ("a", {}, "N"),
    ("a", {"a": "true"}, "F"),
    ("NOT a", {"a": "true"}, "T"),
    ("NULL", {}, "N"),
    ("NOT NULL", {}, "N"),
    ("tRuE aNd Not fAlSe", {}, "T"),
    # names are exact
    ("A = 'x'", {"a": "x"}, "N"),
    ("$_1 = 'x'", {"$_1": "x"}, "T"),
    # a text is read as the type of the number beside it
    ("a > 5", {"a": "6"}, "T"),
    ("a > 5", {"a": "5.5"}, "E"),
    ("a > 5", {"a": "3000000000"}, "E"),
    ("a > 5", {"a": " 6"}, "E"),
    ("a > 5.0", {"a": " 6 "}, "T"),
    ("a > 5.0", {"a": "6d"}, "T"),
    ("a > 5L", {"a": "3000000000"}, "E"),  # a Long that fits an Integer becomes one
    ("a > 2147483648", {"a": "3000000000"}, "T"),
    ("a > -2147483648", {"a": "3000000000"}, "T"),  # a Long before the minus
    ("a > -2147483647", {"a": "3000000000"}, "E"),
    ("a > 5.", {"a": "5.5"}, "T"),
    ("a > 5.", {"a": " 0x1p3 "}, "T"),
    ("a > 5.", {"a": "NaN"}, "T"),
    ("a < .5e1", {"a": "4d"}, "T"),
    ("5 < a", {"a": "x"}, "E"),
    ("a >= -1", {"a": "-1"}, "T"),
    ("a <= +1", {"a": "+1"}, "T"),
    ("a > 5", {}, "N"),
    ("a > b", {"a": "10", "b": "9"}, "T"),
    ("a > b", {"a": "10", "b": "x"}, "E"),
    ("a > b", {"a": "x"}, "N"),
    ("a < b", {"a": "-0.0", "b": "0"}, "T"),
    # a minus before a value that is no number makes NULL
    ("a > -b", {"a": "1", "b": "-5"}, "N"),
    ("a = -'x'", {}, "T"),
    ("-(b = 5) IS NULL", {"b": "x"}, "E"),
    ("a < -(b = 5)", {"b": "x"}, "N"),  # the left is NULL: the right is not evaluated
    ("a < -(b = 5)", {"a": "1", "b": "x"}, "E"),
    ("- -5 = a", {"a": "5"}, "T"),
    ("a = -(NOT TRUE)", {}, "T"),
    ("NOT TRUE = 'x'", {}, "E"),  # after NOT it is no longer a literal
    ("NOT TRUE = 5", {}, "F"),
    # equality
    ("a = '5'", {"a": "5.0"}, "F"),
    ("a = 5", {"a": "05"}, "T"),
    ("'5' = 5", {}, "T"),
    ("5 = 5.0", {}, "T"),
    ("5 = TRUE", {}, "F"),
    ("9007199254740993 = 9007199254740992.0", {}, "T"),
    ("'true' = TRUE", {}, "T"),
    ("a = TRUE", {"a": "TrUe"}, "T"),
    ("a = FALSE", {"a": "yes"}, "T"),
    ("TRUE = a", {"a": "true"}, "E"),
    ("TRUE = a", {}, "F"),
    ("TRUE = (a IS NULL)", {}, "T"),
    ("(a = 1) = 5", {"a": "1"}, "F"),
    ("(a = 1) = b", {"a": "1", "b": "true"}, "E"),
    ("b = (a = 1)", {"a": "1", "b": "true"}, "T"),
    ("a = b", {}, "T"),
    ("a = b", {"a": "1"}, "F"),
    ("a = b", {"b": "1"}, "N"),
    ("a <> b", {}, "F"),
    ("a <> 'x'", {}, "N"),
    ("a <> 'x'", {"a": "y"}, "T"),
    ("a = 'it''s'", {"a": "it's"}, "T"),
    ("a = ''", {"a": ""}, "T"),
    # NULL
    ("a IS NULL", {}, "T"),
    ("a IS NOT NULL", {"a": ""}, "T"),
    ("a = b IS NULL", {"b": "1"}, "T"),  # (a = b) IS NULL
    ("5 IS NULL", {}, "F"),
    ("a IS NULL IS NULL", {}, "F"),
    # NOT binds tighter than comparisons
    ("NOT a = 5", {"a": "5"}, "F"),
    ("NOT a IS NULL", {}, "T"),
    ("NOT (a = 5)", {"a": "6"}, "T"),
    ("NOT NOT (a = 5)", {"a": "5"}, "T"),
    # ranges
    ("a BETWEEN 1 AND 3", {"a": "3"}, "T"),
    ("a BETWEEN 1 AND 3 AND b = 'x'", {"a": "3", "b": "x"}, "T"),
    ("a NOT BETWEEN 1 AND 3", {"a": "4"}, "T"),
    ("a NOT BETWEEN 3 AND 1", {"a": "2"}, "T"),
    ("a BETWEEN -1 AND -3", {"a": "-2"}, "F"),
    ("a BETWEEN 1 AND b", {"a": "0", "b": "x"}, "F"),  # decided by the lower bound
    ("a BETWEEN 1 AND b", {"a": "1", "b": "x"}, "E"),
    ("a BETWEEN b AND 1", {"a": "0"}, "N"),
    ("a BETWEEN b AND 1", {"a": "2"}, "F"),
    ("a NOT BETWEEN b AND 1", {"a": "2"}, "T"),
    ("5 BETWEEN a AND 9", {"a": "3"}, "T"),
    # IN
    ("a IN ('x', 'y')", {"a": "y"}, "T"),
    ("a NOT IN ('x')", {"a": "y"}, "T"),
    ("a NOT IN ('x')", {}, "N"),
    ("+(a) IN ('x')", {"a": "x"}, "T"),
    # searches
    ("a CONTAINS 'b'", {"a": "abc"}, "T"),
    ("a STARTSWITH 'ab'", {"a": "abc"}, "T"),
    ("a ENDSWITH 'ab'", {"a": "abc"}, "F"),
    ("a NOT ENDSWITH 'ab'", {"a": "abc"}, "T"),
    ("a NOT CONTAINS 'b'", {}, "F"),
    ("a NOT CONTAINS ''", {"a": "b"}, "F"),
    ("(a = 5) CONTAINS ''", {"a": "x"}, "F"),
    ("(a = 5) CONTAINS 'x'", {"a": "x"}, "E"),
    ("5 CONTAINS '5'", {}, "F"),
    ("'abc' CONTAINS 'b'", {}, "T"),
    # the left may decide, the right not
    ("a IS NULL OR a > 5", {"a": "x"}, "E"),
    ("a IS NOT NULL OR a > 5", {"a": "x"}, "T"),
    ("a IS NULL AND a > 5", {"a": "x"}, "F"),
    ("a > 5 AND FALSE", {"a": "x"}, "E"),
    ("b AND a > 5", {"a": "x"}, "E"),
    ("b OR a > 5", {"a": "6"}, "T"),
    ("b AND a > 5", {"a": "5"}, "F"),
    ("b OR c", {"c": "1"}, "N"),
    # comments and blanks
    ("a/**/= --x\n'b'/* ' */", {"a": "b"}, "T"),
    ("a --b\r= 5", {"a": "5"}, "T"),
    ("a\f=\t5L", {"a": "5"}, "T"),
)
"""Expression, properties, and RocketMQ's answer: T, F, N (NULL) or E (an exception)."""


REFUSED: tuple[tuple[str, int, str], ...] = (
    ("", 0, ""),
    ("a >", 3, ""),
    ("5", 0, "5"),
    ("'x'", 0, "'x'"),
    ("-a", 1, "a"),
    ("a AND 5", 6, "5"),
    ("a > 'x'", 4, "'x'"),
    ("a > TRUE", 4, "TRUE"),
    ("NULL < a", 0, "NULL"),
    ("a = NULL", 4, "NULL"),
    ("TRUE = 'true'", 7, "'true'"),
    ("(a = 1) > 5", 1, "a"),
    ("NOT a > 5", 4, "a"),
    ("a BETWEEN 5 AND 4.5", 16, "4.5"),
    ("a BETWEEN 5 OR 6", 12, "OR"),
    ("a IN (5)", 6, "5"),
    ("a IN ()", 6, ")"),
    ("a IN ('x'", 9, ""),
    ("'x' IN ('x')", 4, "IN"),
    ("NOT a IN ('x')", 6, "IN"),
    ("a IS 5", 5, "5"),
    ("a NOT NULL", 6, "NULL"),
    ("a CONTAINS b", 11, "b"),
    ("(a = 5", 6, ""),
    ("(a LIKE 'x')", 3, "LIKE"),
    ("a = 0.0", 4, "0.0"),
    ("a = 1e-400", 4, "1e-400"),
    ("a = 1e400", 4, "1e400"),
    ("a = 9223372036854775808", 4, "9223372036854775808"),
    ("a = -9223372036854775808", 5, "9223372036854775808"),
    ("a = 'x", 4, "'"),
    ("a = 5 #", 6, "#"),
    ("a != 5", 2, "!"),
    ('a = "x"', 4, '"'),
    ("a = 5 /* x", 6, "/"),
    ("größe = 5", 2, "ö"),
    ("a = 5\x00", 5, "\x00"),
)
"""Texts that RocketMQ does not parse; the position of our error in characters, and its word."""
IGNORED: tuple[tuple[str, str], ...] = (
    ("a LIKE 'x%'", "a"),
    ("a + 1 > 5", "a"),
    ("a = 007", "a = 0"),
    ("a = 5)", "a = 5"),
    ("a = 5 b #", "a = 5"),
    ("a IS NULL > 5", "a IS NULL"),
    ("a = 1 -- no end of line", "a = 1"),
    ("a = 5.5f", "a = 5.5"),
)
"""Texts of which RocketMQ reads only the beginning, and that beginning."""


# Answers of our two evaluators, in the Java program's letters: T, F, N (NULL), E (exception).


def parsed(expression: str, dialect: int = 5) -> SqlFilter | None:
    """Return the filter; None if it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IgnoredInputWarning)
        try:
            return SqlFilter(expression, dialect)
        except FilterSyntaxError:
            return None


def scalar_answers(sql_filter: SqlFilter, maps: Sequence[Mapping[str, str]]) -> str:
    answers = ""
    for properties in maps:
        try:
            answer = _LETTERS[sql_filter.evaluate(properties)]
        except FilterEvaluationError:
            answer = "E"
        assert sql_filter.matches(properties) is (answer == "T")
        answers += answer
    return answers


def column_answers(sql_filter: SqlFilter, maps: Sequence[Mapping[str, str]]) -> str:
    columns = {
        name: pa.array([properties.get(name) for properties in maps], pa.string())
        for name in sql_filter.property_names
    }
    truth = sql_filter.evaluate_columns(columns, len(maps))
    assert {(part.dtype, len(part)) for part in truth} == {(np.dtype(bool), len(maps))}
    assert np.sum(truth, axis=0).max(initial=0) <= 1  # at most one of TRUE, FALSE and failed
    assert (sql_filter.matches_columns(columns, len(maps)) == truth.true).all()
    letters = np.full(len(maps), "N")
    for letter, rows in zip("TFE", truth):
        letters[rows] = letter
    return "".join(letters)
