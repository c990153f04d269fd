# SPDX-License-Identifier: Apache-2.0
"""The tokens of RocketMQ's SQL92.

Source: RocketMQ ``SelectorParser.jj``, ``SelectorParserTokenManager`` (release 5.3.3; 4.9.7 for
dialect 4).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from store_core.errors import FilterSyntaxError

DIALECTS = (4, 5)
"""4 is that of release 4.9.7, 5 that of release 5.3.3."""

SEARCH_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
"""Operators in dialect 5; names of properties in dialect 4."""

_DIALECT_OF_SEARCH_WORDS = 5
_WORDS = frozenset(["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"])

# The longest match wins: a comment over a minus, a float over a decimal. A line comment needs the
# end of its line, else it is two minuses.
_EXPONENT = r"[eE][+-]?[0-9]+"
_TOKEN = re.compile(
    rf"""
    (?P<blank>   (?: [ \t\n\r\f] | --[^\n\r]*[\n\r] | /\*(?s:.)*?\*/ )+ )
    | (?P<float>   [0-9]+\.[0-9]*(?:{_EXPONENT})? | \.[0-9]+(?:{_EXPONENT})? | [0-9]+{_EXPONENT} )
    | (?P<decimal> 0 | [1-9][0-9]*[lL]? )
    | (?P<string>  '[^']*(?:''[^']*)*' )
    | (?P<name>    [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<symbol>  <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


def search_words(dialect: int) -> tuple[str, ...]:
    """Return the operators among `SEARCH_WORDS` that a dialect has: all or none."""
    return SEARCH_WORDS if dialect >= _DIALECT_OF_SEARCH_WORDS else ()


class Token(NamedTuple):
    """A token and its place.

    Attributes
    ----------
    text
        As written; empty at the end.
    """

    kind: str
    text: str
    start: int
    stop: int


class Tokens:
    """The tokens of a text, read on demand: RocketMQ ignores errors in text that it never reads."""

    def __init__(self, text: str, dialect: int) -> None:
        _check_characters(text)
        self._text, self._keywords = text, _WORDS.union(search_words(dialect))
        self.last_stop = 0
        """End of the last token taken."""
        self.next = self._read(0)
        """The next token."""

    def take(self) -> Token:
        """Return the next token and advance past it."""
        token = self.next
        self.last_stop = token.stop
        self.next = self._read(token.stop)
        return token

    def _read(self, start: int) -> Token:
        found = _TOKEN.match(self._text, start)
        if found and found.lastgroup == "blank":
            start = found.end()
            found = _TOKEN.match(self._text, start)
        if found is None:
            if start == len(self._text):
                return Token("end", "", start, start)
            raise _unreadable(self._text, start)
        kind, text = str(found.lastgroup), found.group()
        if kind == "symbol":
            kind = text
        elif kind == "name" and text.upper() in self._keywords:
            kind = text.upper()
        return Token(kind, text, start, found.end())


def _check_characters(text: str) -> None:
    """Refuse half of a UTF-16 surrogate pair, which no client can send and no message contains."""
    try:
        text.encode()
    except UnicodeEncodeError as err:
        character = text[err.start]
        reason = f"found an unpaired surrogate, {character!r}"
        raise FilterSyntaxError(reason, text, err.start, character, "a whole character") from None


_UNREADABLE = {
    "'": (
        "an unterminated text",
        "a quote (') at its end; a quote inside a text is written ''",
    ),
    "/": ("an unterminated comment", "*/ at its end"),
    "!": ("'!', which RocketMQ does not support", "<> for 'not equal', NOT for negation"),
    '"': ("a double quote", "texts in single quotes ('), names of properties without quotes"),
}


def _unreadable(text: str, start: int) -> FilterSyntaxError:
    character = text[start]
    if character == "/" and not text.startswith("/*", start):
        character = ""
    reason, expected = _UNREADABLE.get(
        character,
        (
            f"{text[start]!r}, which cannot begin a token",
            "names of A-Z, a-z, 0-9, _ and $, numbers, texts in quotes ('), or = <> > >= < <= ( )",
        ),
    )
    return FilterSyntaxError(f"found {reason}", text, start, text[start], expected)
