# SPDX-License-Identifier: Apache-2.0
"""A broker's configuration: Java properties, in a file or sent as text.

Source: ``java.util.Properties.load``, RocketMQ ``MixAll.properties2Object`` (release 5.3.3), whose
results are pinned in ``tests/store_core/config/properties_answers.json``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import StoreConfigError, StoreReadError
from store_core.files.byte_source import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTE_ORDER_MARK = "\ufeff".encode().decode("latin-1")  # to Java a part of the key


class Property(NamedTuple):
    """A value, and the line of the file on which it begins, from 1."""

    value: str
    line: int


def read_properties(path: str) -> dict[str, Property]:
    r"""Read a Java ``.properties`` file as Java does: as Latin-1.

    See `parse_properties`.

    Raises
    ------
    StoreReadError
        The file cannot be read, or is far too large.
    StoreConfigError
        A ``\u`` escape is malformed.
    """
    try:
        data = read_file(path)
    except OSError as err:
        raise StoreReadError(err.strerror or str(err), path) from err
    except ValueError as err:  # a NUL or a lone surrogate in the path
        raise StoreReadError(str(err), path) from err
    return dict(_properties(data.decode("latin-1"), path))


def parse_properties(text: str, origin: str) -> dict[str, str]:
    r"""Return the values of Java properties by key.

    Comments begin with ``#`` or ``!``; ``=``, ``:`` or white space ends a key; a backslash at the
    end continues a line; ``\uXXXX`` is an escape. The last of repeated keys wins.

    Raises
    ------
    StoreConfigError
        A ``\u`` escape is malformed.
    """
    return {key: found.value for key, found in _properties(text, origin)}


def _properties(text: str, origin: str) -> Iterator[tuple[str, Property]]:
    for number, line in _logical_lines(text):
        key, value = _split_property(line, f"{origin}, line {number}")
        yield key, Property(value, number)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that is not a comment, joined with its continuations, and its number."""
    pending, begin, goes_on = "", 0, False
    for number, natural in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = natural.lstrip(" \t\f")
        if not goes_on:
            if not line or line[0] in "#!":
                continue
            begin = number
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if goes_on else line
        if not goes_on:
            yield begin, pending
            pending = ""
    if pending:
        yield begin, pending


_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split_property(line: str, place: str) -> tuple[str, str]:
    parts = _PROPERTY.fullmatch(line)
    key, value = parts.groups() if parts else (line, "")

    def plain(found: re.Match[str]) -> str:
        code = found.group(1)
        if code == "u":
            raise StoreConfigError(f"{place}: malformed \\u escape in {line!r}")
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(plain, key), _ESCAPE.sub(plain, value)


def has_byte_order_mark(key: str) -> bool:
    """Return whether a key begins with the mark that some editors put at the start of a file."""
    return key.startswith(_BYTE_ORDER_MARK)
