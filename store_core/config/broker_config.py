"""A broker's configuration: Java properties, in a file or sent as text."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from store_core.errors import StoreConfigError, StoreReadError
from store_core.files.regular_file import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator


def load_broker_config(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Read a Java ``.properties`` file, as ``-c broker.conf`` of a broker.

    See `parse_properties`. The file is taken as UTF-8, or as Latin-1 where it is no UTF-8.

    Raises
    ------
    StoreReadError
        The file cannot be read, or is far too large.
    StoreConfigError
        A ``\u`` escape is malformed.
    """
    path = os.fspath(path)
    try:
        data = read_file(path)
    except OSError as err:
        raise StoreReadError(err.strerror or str(err), path) from err
    except ValueError as err:  # a NUL, or half a character, in the path
        raise StoreReadError(str(err), path) from err
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return parse_properties(text, path)


def parse_properties(text: str, origin: str) -> dict[str, str]:
    r"""Return the values of Java properties by key.

    Comments begin with ``#`` or ``!``; ``=``, ``:`` or white space separate; a backslash at the
    end continues a line; ``\uXXXX`` escapes. The last of repeated keys wins.

    Parameters
    ----------
    text
        Of all lines.
    origin
        Where it comes from, for errors.

    Raises
    ------
    StoreConfigError
        A ``\u`` escape is malformed.
    """
    return dict(_split_property(line, origin) for line in _logical_lines(text))


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _split_property(line: str, path: str) -> tuple[str, str]:
    parts = _PROPERTY.fullmatch(line)
    key, value = parts.groups() if parts else (line, "")

    def plain(found: re.Match[str]) -> str:
        code = found.group(1)
        if code == "u":
            raise StoreConfigError(f"{path}: malformed \\u escape in {line!r}")
        return chr(int(code[1:], 16)) if len(code) > 1 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(plain, key), _ESCAPE.sub(plain, value)
