# SPDX-License-Identifier: Apache-2.0
"""Parse settings and check their bounds; errors name the key."""

from __future__ import annotations

import math
import os
import re
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from store_core.errors import StoreConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Bounds = tuple[float, float]

INT_MAX = 2**31 - 1
_LAST_HOUR = 23
_DELAY_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_DELAY_DIGITS = 9
_DELAY_LEVEL = re.compile(rf"([+-]?[0-9]{{1,{_MAX_DELAY_DIGITS}}})([smhd])", re.ASCII)
_SHOWN_CHARACTERS = 200
_BOOLS = {"true": True, "false": False}
_KINDS = {"int": int, "bool": bool, "float": float, "str": str}
_WANTED = {int: "a whole number", bool: "True or False", float: "a number", str: "a string"}


@cache
def camel_case(name: str) -> str:
    """Return RocketMQ's key for the name of a field."""
    first, *rest = name.split("_")
    return first + "".join("CRC" if word == "crc" else word.capitalize() for word in rest)


class Settings:
    """The key, the kind and the bounds of each field of a class, determined once.

    It checks texts, numbers and bools, and ignores other fields.

    Parameters
    ----------
    bounds, other_bounds
        Bounds of numbers by field, and of the fields not named there; both ends are included.
    spellings
        Keys by field, where they are not what `keys` returns.
    choices
        The texts that a field may have.
    keys
        Returns the key for the name of a field; RocketMQ's by default.
    error
        The class of the errors.
    """

    def __init__(
        self,
        cls: type,
        bounds: Mapping[str, Bounds],
        other_bounds: Bounds,
        *,
        spellings: Mapping[str, str] | None = None,
        choices: Mapping[str, Collection[str]] | None = None,
        keys: Callable[[str], str] = camel_case,
        error: type[Exception] = StoreConfigError,
    ) -> None:
        types = {each.name: str(each.type) for each in fields(cls)}
        found = {name: _KINDS.get(kind.partition(" ")[0]) for name, kind in types.items()}
        self.kinds: dict[str, type] = {name: kind for name, kind in found.items() if kind}
        self.keys = {name: (spellings or {}).get(name) or keys(name) for name in self.kinds}
        self._choices, self._error = choices or {}, error
        self._rows: list[tuple[str, Any, bool, Bounds]] = [
            (name, kind, "None" in types[name], bounds.get(name, other_bounds))
            for name, kind in self.kinds.items()
        ]

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse values of another kind, numbers out of bounds, and texts that are not a choice.

        None is accepted where a field may be None.
        """
        for name, kind, may_be_none, (least, most) in self._rows:
            value = values[name]
            if type(value) is kind:  # nearly always: saves two calls per field
                is_good = kind is bool or (kind is not str and least <= value <= most)
                if is_good or (kind is str and value.isascii() and "\0" not in value):
                    continue
            if value is not None or not may_be_none:
                self._check_value(self.keys[name], kind, value, (least, most))
        for name, choices in self._choices.items():
            if values[name] not in choices:
                raise self._error(
                    f"{self.keys[name]}={shortened(values[name])}: expected one of "
                    f"{', '.join(choices)}"
                )

    def _check_value(self, key: str, kind: type, value: Any, bounds: Bounds) -> None:
        is_kind = isinstance(value, (int, float) if kind is float else kind)
        if not is_kind or (isinstance(value, bool) and kind is not bool):
            raise self._error(f"{key}={value!r}: expected {_WANTED[kind]}")
        if kind is str and not _is_file_name(value):
            raise self._error(
                f"{key}={shortened(value)}: NUL characters and unpaired surrogates are not allowed"
            )
        if kind in (int, float) and not bounds[0] <= value <= bounds[1]:
            most = "or more" if bounds[1] == math.inf else f"to {bounds[1]}"
            raise self._error(f"{key}={value}: must be {bounds[0]} {most}")

    def parse(self, name: str, text: str) -> Any:
        """Parse a text to the value of a field."""
        key, kind = self.keys[name], self.kinds[name]
        if kind is int:
            return _parse_int(key, text)
        if kind is bool:
            value = _BOOLS.get(text.strip().lower())
            if value is None:
                raise StoreConfigError(f"{key}={shortened(text)}: expected true or false")
            return value
        return text

    def texts(self, config: object) -> dict[str, str]:
        """Return the settings as texts by key, without those that are None."""
        found = ((key, getattr(config, name)) for name, key in self.keys.items())
        return {key: property_text(value) for key, value in found if value is not None}


def property_text(value: Any) -> str:
    """Return a value as it is written in files of settings."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def properties_text(texts: Mapping[str, str]) -> str:
    """Return settings as Java properties, sorted by key: one line ``key=value`` each."""
    return "".join(f"{key}={text}\n" for key, text in sorted(texts.items()))


def _is_file_name(text: str) -> bool:
    """Return whether a file can have this name, as some of the texts are paths."""
    try:
        return "\0" not in text and bool(os.fsencode(text) or not text)
    except UnicodeEncodeError:
        return False


def shortened(text: str) -> str:
    """Return a text quoted for an error message, cut if it is long."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def _parse_int(key: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip(), re.ASCII):
        raise StoreConfigError(f"{key}={shortened(text)}: expected a whole number")
    return int(text)


def parse_hours(key: str, text: str) -> tuple[int, ...]:
    """Parse hours of the day, separated by semicolons.

    Source: RocketMQ ``UtilAll.isItTimeToDo`` (release 5.3.3).
    """
    words = [word.strip() for word in text.split(";") if word.strip()]
    hours = tuple(_parse_int(key, word) for word in words)
    if not hours or not all(0 <= hour <= _LAST_HOUR for hour in hours):
        raise StoreConfigError(
            f"{key}={shortened(text)}: expected hours from 0 to 23, separated by semicolons"
        )
    return hours


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delay of each level, ms.

    Source: RocketMQ ``ScheduleMessageService.parseDelayLevel`` (release 5.3.3); Java's split drops
    empty words at the end.
    """
    levels = []
    for word in text.rstrip(" ").split(" "):
        level = _DELAY_LEVEL.fullmatch(word)
        if level is None:
            raise StoreConfigError(
                f"messageDelayLevel={shortened(text)}: {shortened(word)} is not a number of up to "
                f"{_MAX_DELAY_DIGITS} digits with unit s, m, h or d"
            )
        levels.append(int(level.group(1)) * _DELAY_UNITS_MS[level.group(2)])
    return tuple(levels)
