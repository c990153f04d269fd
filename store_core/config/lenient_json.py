# SPDX-License-Identifier: Apache-2.0
"""JSON as RocketMQ reads it with fastjson, 1.2 in releases up to 5.3 and 2 later.

It accepts what either version accepts; the results of real brokers are pinned in
``tests/store_core/config/fastjson_answers.json``. It also converts values as fastjson does where a
number, a flag or a text is declared.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

_SPACE = re.compile(r"(?:[\x00-\x20\x7f]+|//[^\n]*|/\*.*?\*/|/\*.*\Z)*", re.DOTALL)
_SPACE_OR_COMMAS = re.compile(r"(?:[\x00-\x20\x7f,]+|//[^\n]*|/\*.*?\*/|/\*.*\Z)*", re.DOTALL)
_NUMBER = re.compile(
    r"([+-]?(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?)([LSBFD]?)(?![\w.$])", re.ASCII
)
_NUMBER_TEXT = re.compile(r"[+-]?\d{1,19}(?:,\d{3})*(\.\d*)?([eE][+-]?\d{1,2})?")
_BARE_WORD = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_STRING = {
    quote: re.compile(rf"{quote}([^{quote}\\]*(?:\\.[^{quote}\\]*)*){quote}", re.DOTALL)
    for quote in "\"'"
}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPED = {
    **{"b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"},
    **{each: each for each in "\"'/\\"},
    **{str(code): chr(code) for code in range(8)},
}
_WORDS: dict[str, Any] = {
    **{"true": True, "false": False},
    **dict.fromkeys(("null", "undefined", "NaN")),
}
_TRUE, _FALSE = frozenset({"true", "1", "y", "t"}), frozenset({"false", "0", "n", "f"})
_FLAGS = {"true": 1, "false": 0}
_UNSET = (None, "", "null", "NULL")
_MAX_DIGITS = 4000  # Python itself refuses longer numbers
_EXACT_FLOATS = 2**53
_BYTE_ORDER_MARK = "\ufeff"


def decode_lenient_json(data: bytes) -> Any:
    """Parse the bytes of a file as RocketMQ does: as UTF-8, with or without a byte order mark.

    Bytes that are not UTF-8 become U+FFFD.
    """
    return parse_lenient_json(data.decode("utf-8", "replace").removeprefix(_BYTE_ORDER_MARK))


def parse_lenient_json(text: str) -> Any:
    """Parse a text that fastjson accepts.

    That is JSON, also with comments, single quotes, bare words as keys, extra or missing commas,
    and numbers such as ``4L``. Keys of objects may be numbers, which become ints, and objects,
    which become frozensets of their items (whose values must not be lists or objects). Of repeated
    keys the last wins.

    Raises
    ------
    ValueError
        The text is anything else; the message names the position.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_decimal)
    except ValueError:
        pass  # it may use one of the additions
    except RecursionError as err:
        raise ValueError("nested too deeply") from err
    try:
        value, end = _value(text, _skip(text, 0))
    except RecursionError as err:
        raise ValueError("nested too deeply") from err
    if _skip_commas(text, end) != len(text):
        raise json.JSONDecodeError("text after the value", text, end)
    return value


def json_object(value: Any, name: str) -> dict[Any, Any]:
    """Return an object, empty for ``null``; ValueError, which names the field, for other values."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name}: an object was expected, not {value!r:.80}")  # noqa: TRY004
    return value


def json_whole_number(value: Any, name: str, bits: int = 64) -> int:
    """Convert a value as fastjson does where a number of so many bits is declared.

    Decimals lose their fraction, flags become 1 and 0, texts are parsed. ValueError, which names
    the field, for other values, and for a number that does not fit.
    """
    number = _number(value)
    if number is None:
        raise ValueError(f"{name}: a whole number was expected, not {value!r:.80}")
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{name}: {number} does not fit {bits} bits")
    return number


def json_number_or_default(value: Any, name: str, default: int, bits: int = 64) -> int:
    """Do as `json_whole_number`; return the default for ``null`` and empty texts."""
    return default if is_unset(value) else json_whole_number(value, name, bits)


def json_flag_or_default(value: Any, name: str, *, default: bool) -> bool:
    """Convert a value as fastjson does where a flag is declared; ``null`` and '' give the default.

    ValueError, which names the field, for other values.
    """
    if is_unset(value):
        return default
    if isinstance(value, (int, float)):
        return 1 <= value < 2  # noqa: PLR2004 (fastjson drops the fraction)
    word = value.lower() if isinstance(value, str) else ""
    if word not in _TRUE | _FALSE:
        raise ValueError(f"{name}: true or false was expected, not {value!r:.80}")
    return word in _TRUE


def fastjson_text(value: Any) -> str:
    """Convert a value as fastjson does where a text is declared; other values become JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def is_unset(value: Any) -> bool:
    """Return whether fastjson leaves a field at its default for this value."""
    return not isinstance(value, (dict, list, frozenset)) and value in _UNSET


def json_flag(value: Any) -> bool:
    """Return whether fastjson takes a value for true: a word, a number, or either as text."""
    return str(value).lower() in {"true", "1"}


def json_field(data: dict[Any, Any], name: str) -> Any:
    """Return a field of a bean, None if it is missing.

    As in fastjson, if no field has exactly this name, case, ``_`` and ``-`` are ignored: a client
    of .NET writes ``ClientID`` and ``ConsumerDataSet``.
    """
    if name in data:
        return data[name]
    wanted = _plain_name(name)
    return next((value for key, value in data.items() if _plain_name(str(key)) == wanted), None)


def _plain_name(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _number(value: Any) -> int | None:
    """Return a value as a whole number, None if it is not a number."""
    if isinstance(value, str):
        found = _NUMBER_TEXT.fullmatch(value)
        if found is None:
            return _FLAGS.get(value)
        plain = value.replace(",", "")
        value = int(plain) if found.groups() == (None, None) else _decimal(plain)
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, int) else None


def _decimal(text: str) -> float | int:
    """Return a float, or an exact int if the number is too large for a fraction."""
    value = float(text)
    is_exact = abs(value) < _EXACT_FLOATS or "e" in text.lower()
    return value if is_exact else int(Decimal(text))


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _skip_commas(text: str, at: int) -> int:
    found = _SPACE_OR_COMMAS.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> tuple[Any, int]:
    first = text[at : at + 1]
    if first == "{":
        return _object(text, at)
    if first == "[":
        return _array(text, at)
    if first in _STRING:
        return _string(text, at)
    word = _BARE_WORD.match(text, at)
    if word is not None and word.group() in _WORDS:
        return _WORDS[word.group()], word.end()
    return _parse_number(text, at)


def _parse_number(text: str, at: int) -> tuple[Any, int]:
    number = _NUMBER.match(text, at)
    if number is None or number.end() - at > _MAX_DIGITS:
        raise json.JSONDecodeError("a value was expected", text, at)
    digits, *fraction, suffix = number.groups()
    is_whole = fraction == [None] * len(fraction) and suffix not in {"F", "D"}
    return (int if is_whole else _decimal)(digits), number.end()


def _string(text: str, at: int) -> tuple[str, int]:
    found = _STRING[text[at]].match(text, at)
    if found is None:
        raise json.JSONDecodeError("unterminated string", text, at)
    if "\\" not in found.group(1):
        return found.group(1), found.end()

    def plain(escape: re.Match[str]) -> str:
        code = escape.group(1)
        if len(code) > 1:
            return chr(int(code[1:], 16))
        if code not in _ESCAPED:
            raise json.JSONDecodeError("unknown escape sequence", text, at)
        return _ESCAPED[code]

    return _joined(_ESCAPE.sub(plain, found.group(1))), found.end()


def _joined(text: str) -> str:
    """Join the surrogate pairs of a text to whole characters."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _object(text: str, at: int) -> tuple[dict[Any, Any], int]:
    members: dict[Any, Any] = {}
    at = _skip_commas(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = _key(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("':' was expected", text, at)
        members[key], at = _value(text, _skip(text, at + 1))
        at = _skip_commas(text, at)
    return members, at + 1


def _key(text: str, at: int) -> tuple[Any, int]:
    first = text[at : at + 1]
    if first in _STRING:
        return _string(text, at)
    if first == "{":
        members, end = _object(text, at)
        try:
            return frozenset(members.items()), end
        except TypeError as err:
            raise json.JSONDecodeError("a key contains a list or an object", text, at) from err
    word = _BARE_WORD.match(text, at)
    if word is not None:
        return word.group(), word.end()
    try:
        number, end = _parse_number(text, at)
    except json.JSONDecodeError as err:
        raise json.JSONDecodeError("a key was expected", text, at) from err
    if not math.isfinite(number):
        raise json.JSONDecodeError("a key was expected", text, at)
    return int(number), end


def _array(text: str, at: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _skip_commas(text, at + 1)
    while text[at : at + 1] != "]":
        value, at = _value(text, at)
        values.append(value)
        at = _skip_commas(text, at)
    return values, at + 1
