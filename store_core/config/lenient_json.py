"""JSON as brokers and clients write it (fastjson 1.2): keys may be bare numbers or objects.

Also what a file of theirs must hold at a place, where it is not taken on trust.
"""

from __future__ import annotations

import json
import re
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_BARE_KEY = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}
_DECODER = json.JSONDecoder()
_MAX_DIGITS = 4000  # Python itself refuses longer numbers


def parse_lenient_json(text: str) -> Any:
    """Parse strict JSON with two additions: whole numbers and objects as keys of objects.

    A number as key becomes an int; an object as key becomes the frozenset of its items (whose
    values must not be lists or objects). Of repeated keys the last wins.

    Raises
    ------
    ValueError
        The text is anything else; the message names the position.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError:
        pass  # maybe for one of the two additions
    except RecursionError as err:
        raise ValueError("nested too deeply") from err
    try:
        value, end = _value(text, _skip(text, 0))
    except RecursionError as err:
        raise ValueError("nested too deeply") from err
    if _skip(text, end) != len(text):
        raise json.JSONDecodeError("text after the value", text, end)
    return value


def json_object(value: Any, name: str) -> dict[Any, Any]:
    """Return an object, empty for ``null``; ValueError, which names the field, for all else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name}: an object was expected, not {value!r:.80}")  # noqa: TRY004
    return value


def json_whole_number(value: Any, name: str) -> int:
    """Return a whole number; ValueError, which names the field, for all else."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(  # noqa: TRY004 (one kind of failure)
            f"{name}: a whole number was expected, not {value!r:.80}"
        )
    return value


def json_number_or_text(value: Any, name: str) -> int:
    """Return a whole number, also one written as text; ValueError for all else.

    Clients in C++ and Go write some so, and fastjson reads them.
    """
    is_text = isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value)
    return json_whole_number(int(value) if is_text else value, name)


def json_flag(value: Any) -> bool:
    """Return what fastjson takes for true or false: a word, a number, or either as text."""
    return str(value).lower() in {"true", "1"}


def json_field(data: dict[Any, Any], name: str) -> Any:
    """Return a field of a bean, None where it is missing.

    As in fastjson, where none has that very name its capitals, ``_`` and ``-`` do not count: a
    client of .NET writes ``ClientID`` and ``ConsumerDataSet``.
    """
    if name in data:
        return data[name]
    wanted = _plain_name(name)
    return next((value for key, value in data.items() if _plain_name(str(key)) == wanted), None)


def _plain_name(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> tuple[Any, int]:
    first = text[at : at + 1]
    if first == '"':
        return _DECODER.raw_decode(text, at)
    if first == "{":
        return _object(text, at)
    if first == "[":
        return _array(text, at)
    for word, constant in _WORDS.items():
        if text.startswith(word, at):
            return constant, at + len(word)
    number = _NUMBER.match(text, at)
    if number is None or number.end() - at > _MAX_DIGITS:
        raise json.JSONDecodeError("a value was expected", text, at)
    is_whole = number.group(1) is None and number.group(2) is None
    return (int if is_whole else float)(number.group()), number.end()


def _object(text: str, at: int) -> tuple[dict[Any, Any], int]:
    members: dict[Any, Any] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        key, at = _key(text, at)
        at = _skip(text, at)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("':' was expected", text, at)
        members[key], at = _value(text, _skip(text, at + 1))
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return members, at + 1
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("',' or '}' was expected", text, at)
        at = _skip(text, at + 1)


def _key(text: str, at: int) -> tuple[Any, int]:
    first = text[at : at + 1]
    if first == '"':
        return _DECODER.raw_decode(text, at)
    if first == "{":
        members, end = _object(text, at)
        try:
            return frozenset(members.items()), end
        except TypeError as err:
            raise json.JSONDecodeError("a key holds a list or an object", text, at) from err
    number = _BARE_KEY.match(text, at)
    if number is None or number.end() - at > _MAX_DIGITS:
        raise json.JSONDecodeError("a key was expected", text, at)
    return int(number.group()), number.end()


def _array(text: str, at: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return values, at + 1
    while True:
        value, at = _value(text, at)
        values.append(value)
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            return values, at + 1
        if text[at : at + 1] != ",":
            raise json.JSONDecodeError("',' or ']' was expected", text, at)
        at = _skip(text, at + 1)
