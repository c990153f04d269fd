"""Texts and bounds of settings; errors name RocketMQ's key."""

from __future__ import annotations

import os
import re
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from store_core.errors import StoreConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

INT_MAX = 2**31 - 1
_LAST_HOUR = 23
_DELAY_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_DELAY_DIGITS = 9
_DELAY_LEVEL = re.compile(rf"([+-]?[0-9]{{1,{_MAX_DELAY_DIGITS}}})([smhd])", re.ASCII)
_SHOWN_CHARACTERS = 200
_BOOLS = {"true": True, "false": False}


class Settings:
    """RocketMQ's key, the kind and the bounds of each field of a class, looked up once.

    Parameters
    ----------
    bounds, other_bounds
        Of numbers, by field, and of those that are not named there.
    spellings
        The keys that are no camel case of their fields.
    """

    def __init__(
        self,
        cls: type,
        bounds: Mapping[str, tuple[int, int]],
        other_bounds: tuple[int, int],
        spellings: Mapping[str, str],
    ) -> None:
        self.kinds = {each.name: str(each.type) for each in fields(cls)}
        self.keys = {name: spellings.get(name) or camel_case(name) for name in self.kinds}
        self._rows: list[tuple[str, Any, bool, tuple[int, int]]] = [
            (name, _type_of(kind), "None" in kind, bounds.get(name, other_bounds))
            for name, kind in self.kinds.items()
        ]

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse what `check_value` does; None is good where a field may be None."""
        for name, kind, may_be_none, (least, most) in self._rows:
            value = values[name]
            if type(value) is kind:  # nearly all: spares two calls a field
                is_good = kind is bool or (kind is int and least <= value <= most)
                if is_good or (kind is str and value.isascii() and "\0" not in value):
                    continue
            if value is not None or not may_be_none:
                check_value(self.keys[name], self.kinds[name], value, (least, most))

    def parse(self, name: str, text: str) -> Any:
        """Return the value of a field that a text stands for."""
        return parse_value(self.keys[name], self.kinds[name], text)

    def texts(self, config: object) -> dict[str, str]:
        """Return what is set, by RocketMQ's keys; fields that are None stay away."""
        found = ((key, getattr(config, name)) for name, key in self.keys.items())
        return {key: property_text(value) for key, value in found if value is not None}


def _type_of(kind: str) -> type:
    return int if kind.startswith("int") else bool if kind.startswith("bool") else str


def property_text(value: Any) -> str:
    """Return a value as files of settings have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def properties_text(texts: Mapping[str, str]) -> str:
    """Return settings as Java properties, sorted by key: a line ``key=value`` each."""
    return "".join(f"{key}={text}\n" for key, text in sorted(texts.items()))


@cache
def camel_case(name: str) -> str:
    """Return RocketMQ's key of a field."""
    first, *rest = name.split("_")
    return first + "".join("CRC" if word == "crc" else word.capitalize() for word in rest)


def parse_value(key: str, kind: str, text: str) -> Any:
    """Return a value of the kind that a field's annotation names: int, bool, or else text."""
    if kind.startswith("int"):
        return _parse_int(key, text)
    if kind.startswith("bool"):
        value = _BOOLS.get(text.strip().lower())
        if value is None:
            raise StoreConfigError(f"{key}={shortened(text)}: true or false is needed")
        return value
    return text


def check_value(key: str, kind: str, value: Any, bounds: tuple[int, int]) -> None:
    """Refuse a value of another kind, and a number out of bounds (both included)."""
    if kind.startswith("int"):
        if not isinstance(value, int) or isinstance(value, bool):
            raise StoreConfigError(f"{key}={value!r}: a whole number is needed")
        if not bounds[0] <= value <= bounds[1]:
            raise StoreConfigError(f"{key}={value}: must be {bounds[0]} to {bounds[1]}")
    elif kind.startswith("bool"):
        if not isinstance(value, bool):
            raise StoreConfigError(f"{key}={value!r}: True or False is needed")
    elif not isinstance(value, str):
        raise StoreConfigError(f"{key}={value!r}: a text is needed")
    else:
        _check_text(key, value)


def _check_text(key: str, text: str) -> None:
    """Refuse what no name of a file can be: some of the texts are paths."""
    try:
        is_name = "\0" not in text and bool(os.fsencode(text) or not text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise StoreConfigError(f"{key}={shortened(text)}: NUL and half characters are not allowed")


def shortened(text: str) -> str:
    """Return a text for an error: quoted, and not all of it where it is long."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def check_choice(key: str, value: str, choices: Collection[str]) -> None:
    """Refuse what is none of the names."""
    if value not in choices:
        raise StoreConfigError(f"{key}={shortened(value)}: one of {', '.join(choices)} is needed")


def _parse_int(key: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", text.strip(), re.ASCII):
        raise StoreConfigError(f"{key}={shortened(text)}: a whole number is needed")
    return int(text)


def parse_hours(key: str, text: str) -> tuple[int, ...]:
    """Return hours of the day that semicolons separate.

    Source: RocketMQ ``UtilAll.isItTimeToDo`` (release 5.3.3).
    """
    words = [word.strip() for word in text.split(";") if word.strip()]
    hours = tuple(_parse_int(key, word) for word in words)
    if not hours or not all(0 <= hour <= _LAST_HOUR for hour in hours):
        raise StoreConfigError(
            f"{key}={shortened(text)}: hours 0 to 23, separated by semicolons, are needed"
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
