# SPDX-License-Identifier: Apache-2.0
"""How options are declared, at the field they fill, and how their texts become values."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import field, fields
from datetime import datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, TypeVar, cast

from rmqsource.errors import SourceOptionError
from store_core.files.store_directory import named_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    Given = dict[str, tuple["OptionInfo", str]]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
# As in Spark's JavaUtils.byteStringAs: binary multiples, one letter with or without b.
_BYTES = re.compile(r"([0-9]{1,19})\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_BYTE_SHIFT = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_INSTANT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?)?"
    r"\s*(?P<offset>[Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MAX_OFFSET_MINUTES = 18 * 60
_MINUTES = 60
_MILLISECOND = timedelta(milliseconds=1)
_NS_PER_MS = 1_000_000
_LIKE_SECONDS = range(10**9, 10**11)
"""As seconds these are times from 2001 on; as ms, times up to March 1973."""
_UNIT_MS = {
    **{"": 1, "ms": 1, "s": 1000, "sec": 1000, "seconds": 1000},
    **{"m": 60_000, "min": 60_000, "minutes": 60_000, "h": 3_600_000, "d": 86_400_000},
}
_TAG_SEPARATOR = "||"
_ALL_TAGS = "*"
_MESSAGE_ID = re.compile(r"[0-9A-F]{32}|[0-9A-F]{56}")
_DELAY_LEVELS = re.compile(r"[0-9]{1,9}[smhd]( +[0-9]{1,9}[smhd])*")
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_DURATION = re.compile(r"([0-9]{1,9}) *(|ms|s|sec|seconds|m|min|minutes|h|d)", re.IGNORECASE)
Parse = Callable[[str, str], Any]
"""Returns the value of an option, given its name and text."""
_Kind = TypeVar("_Kind")
_INFO = "option"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the nearest known name; empty if none is near."""
    by_lower_name = {one.lower(): one for one in known}
    near = get_close_matches(name.lower(), by_lower_name, 1)
    return f", did you mean {by_lower_name[near[0]]!r}?" if near else ""


def parse_text(option: str, text: str) -> str:
    """Return the text unchanged; a blank one is an error."""
    if not text.strip():
        raise SourceOptionError(option, "is empty; give a value or omit the option")
    return text


def parse_bool(option: str, text: str) -> bool:
    """Return the value of ``true`` or ``false``, in any case."""
    return parse_choice(option, text, ("true", "false")) == "true"


def parse_choice(option: str, text: str, choices: Sequence[str]) -> str:
    """Return the one of ``choices`` that equals the text, in any case."""
    for choice in choices:
        if text.strip().lower() == choice.lower():
            return choice
    raise SourceOptionError(option, f"expected one of {', '.join(choices)}; found {text!r}")


def parse_int(option: str, text: str, low: int = 0, high: int = INT64_MAX) -> int:
    """Return a decimal integer in ``[low, high]``."""
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped) and low <= int(stripped) <= high:
        return int(stripped)
    raise SourceOptionError(option, f"expected an integer from {low} to {high}; found {text!r}")


parse_count = partial(parse_int, low=1, high=INT32_MAX)


def parse_bytes(option: str, text: str, low: int = 1, high: int = INT64_MAX) -> int:
    """Return a number of bytes in ``[low, high]``, with an optional suffix (``64k``)."""
    match = _BYTES.fullmatch(text.strip())
    size = int(match[1]) << _BYTE_SHIFT[match[2].lower()] if match else -1
    if low <= size <= high:
        return size
    raise SourceOptionError(
        option,
        f"expected a number of bytes from {low} to {high}, such as 1048576, 64k, 128m or 1g; "
        f"found {text!r}",
    )


def parse_duration_ms(option: str, text: str) -> int:
    """Return a time span in ms: ``500ms``, ``30s``, ``15m``, ``2h``, ``1d``; no unit means ms."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise SourceOptionError(
            option, f"expected a time span such as 500ms, 30s, 15m, 2h or 1d; found {text!r}"
        )
    return int(match[1]) * _UNIT_MS[match[2].lower()]


def load_json(option: str, text: str, expected: str) -> Any:
    """Return the JSON value; a name that repeats in an object is an error."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values = dict(pairs)
        if len(values) < len(pairs):
            names = Counter(name for name, _ in pairs)
            raise SourceOptionError(option, f"{names.most_common(1)[0][0]!r} appears twice")
        return values

    try:
        value = json.loads(text, object_pairs_hook=unique)
        json.dumps(value, ensure_ascii=False).encode()  # fails on half a surrogate pair
    except SourceOptionError:
        raise
    except (ValueError, RecursionError) as err:
        raise SourceOptionError(option, f"expected {expected}; found {text!r} ({err})") from err
    return value


def parse_list(option: str, text: str) -> tuple[str, ...]:
    """Return the distinct items of a JSON array of strings or a comma separated text.

    Blanks around items are removed in the comma form only.
    """
    if text.lstrip().startswith("["):
        expected = 'a JSON array of strings as ["a", "b"]'
        items = load_json(option, text, expected)
        if not all(isinstance(item, str) for item in items):
            raise SourceOptionError(option, f"expected {expected}; found {text!r}")
    else:
        items = [item.strip() for item in text.split(",")]
    if not items or not all(items):
        raise SourceOptionError(
            option,
            "expected names separated by commas or a JSON array, none of them empty; "
            f"found {text!r}",
        )
    return tuple(dict.fromkeys(items))


def parse_int_list(option: str, text: str, high: int = INT32_MAX) -> tuple[int, ...]:
    """Return distinct integers in ``[0, high]`` of a JSON array or a comma separated text."""
    if text.lstrip().startswith("["):
        items = load_json(option, text, "a JSON array of integers as [0, 1]")
    else:
        items = text.split(",")
    if not items or any(isinstance(item, (bool, float, list, dict)) for item in items):
        raise SourceOptionError(option, f"expected integers such as 0,1 or [0, 1]; found {text!r}")
    return tuple(dict.fromkeys(parse_int(option, str(item), 0, high) for item in items))


def parse_place(option: str, text: str) -> str:
    """Return the URI or path of a store or another place, with short names expanded."""
    return named_store(parse_text(option, text))


def parse_paths(option: str, text: str) -> tuple[str, ...]:
    """Return the paths of a JSON array."""
    expected = 'a JSON array of paths as ["/a", "/b"]'
    items = load_json(option, text, expected)
    if not isinstance(items, list) or not all(isinstance(item, str) and item for item in items):
        raise SourceOptionError(option, f"expected {expected}; found {text!r}")
    return tuple(named_store(item) for item in items)


def parse_pattern(option: str, text: str) -> str:
    """Return the text of a regular expression."""
    try:
        re.compile(parse_text(option, text))
    except re.error as err:
        reason = f"{text!r} is not a Python regular expression: {err}"
        raise SourceOptionError(option, reason) from err
    return text


def parse_message_ids(option: str, text: str) -> tuple[str, ...]:
    """Return distinct offset message ids in upper case."""
    ids = tuple(dict.fromkeys(item.upper() for item in parse_list(option, text)))
    for message_id in ids:
        if not is_message_id(message_id):
            raise SourceOptionError(
                option,
                "expected offset message ids of 32 or 56 hex digits (column message_id); "
                f"found {message_id!r}. For a client message id, use uniqueKeys",
            )
    return ids


def is_message_id(text: str) -> bool:
    """Return whether the text has the form of column ``message_id``."""
    return _MESSAGE_ID.fullmatch(text) is not None


def parse_tags(option: str, text: str) -> tuple[str, ...] | None:
    """Return the tags of an expression; None for ``*`` or blank text, which select all messages.

    Source: RocketMQ ``FilterAPI.buildSubscriptionData`` (5.3.3).
    """
    if text.strip() in {"", _ALL_TAGS}:
        return None
    tags = tuple(dict.fromkeys(t.strip() for t in text.split(_TAG_SEPARATOR) if t.strip()))
    if not tags:
        raise SourceOptionError(option, f"expected TagA || TagB, or *; found {text!r}")
    return tags


def delay_levels_text(option: str, text: str) -> str:
    """Return delay levels in the form of a broker's configuration file."""
    if not _DELAY_LEVELS.fullmatch(text.strip()):
        raise SourceOptionError(option, f"expected times such as 1s 5s 10m 2h; found {text!r}")
    return text.strip()


def is_topic_name(name: str) -> bool:
    """Return whether RocketMQ's ``TopicValidator`` (5.3.3) accepts all characters of a name."""
    return _NAME.fullmatch(name) is not None


def parse_name(option: str, text: str, kind: str, longest: int | None = None) -> str:
    """Return the name of a topic or a group."""
    name = text.strip()
    if is_topic_name(name) and name == name[:longest]:
        return name
    raise SourceOptionError(
        option, f"expected one {kind} name of letters, digits and % | _ -; found {text!r}"
    )


def parse_time_ms(option: str, text: str, zone: tzinfo | None = None) -> int:
    """Return an instant as ms since the epoch, rounded up to a whole ms.

    Rounding up is exact for either bound of a half-open range over times in whole ms.

    Parameters
    ----------
    text
        Milliseconds since the epoch, or ISO 8601 with ``Z`` or an offset such as ``+08:00``.
    zone
        Time zone of a time without an offset, which is an error if None.
    """
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped):
        return _no_seconds(option, parse_int(option, stripped, -INT64_MAX - 1, INT64_MAX))
    other = "milliseconds since the epoch, or "
    return -(-parse_instant_ns(option, text, other, zone) // _NS_PER_MS)


def parse_instant_ns(option: str, text: str, other: str = "", zone: tzinfo | None = None) -> int:
    """Return an instant in ISO 8601, with ``Z`` or an offset, as nanoseconds since the epoch.

    Parameters
    ----------
    text
        For example ``2026-01-31T17:00:00.000+08:00``.
    zone
        Time zone of a time without an offset, which is an error if None.
    """
    match = _INSTANT.fullmatch(text.strip())
    instant = _local_ns(match) if match else None
    if match is None or instant is None:
        raise SourceOptionError(
            option,
            f"expected {other}ISO 8601 with an offset such as 2026-01-31T09:00:00Z or "
            f"2026-01-31T17:00:00+08:00; found {text!r}",
        )
    if match["offset"] is None and zone is not None:
        return instant - _zone_offset_ns(instant, zone)
    if match["offset"] is None:
        raise SourceOptionError(
            option,
            f"{text!r} has no offset from UTC; if it is UTC, write {_utc_text(match)!r}, "
            "otherwise add its offset, such as +08:00",
        )
    return instant - _offset_minutes(option, match["offset"]) * 60_000 * _NS_PER_MS


def _zone_offset_ns(local_ns: int, zone: tzinfo) -> int:
    """Return how far a zone is ahead of UTC at the time that its clocks show."""
    clock = (_EPOCH + timedelta(microseconds=local_ns // 1000)).replace(tzinfo=zone)
    return (clock.utcoffset() or timedelta()) // _MILLISECOND * _NS_PER_MS


def _no_seconds(option: str, number: int) -> int:
    """Return ms; refuse numbers that as ms predate RocketMQ and as seconds are recent times."""
    if number not in _LIKE_SECONDS:
        return number
    raise SourceOptionError(
        option,
        f"{number} looks like seconds, but milliseconds are expected: write {number * 1000}; "
        f"if you meant milliseconds, write {shown_ms(number)}",
    )


def shown_ms(milliseconds: int) -> str:
    """Return an instant in ISO 8601 in UTC; the number of ms if its year is beyond Python's."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _local_ns(match: re.Match[str]) -> int | None:
    """Return the written clock time as if in UTC; None if there is no such time."""
    year, month, day = (int(number) for number in match["date"].split("-"))
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    try:  # not fromisoformat: from Python 3.14 on it accepts 24:00
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    nanoseconds = int((match["fraction"] or "0").ljust(9, "0"))
    return (moment - _EPOCH) // _MILLISECOND * _NS_PER_MS + nanoseconds


def _utc_text(match: re.Match[str]) -> str:
    clock = f"{match['hour'] or '00'}:{match['minute'] or '00'}:{match['second'] or '00'}"
    fraction = f".{match['fraction']}" if match["fraction"] else ""
    return f"{match['date']}T{clock}{fraction}Z"


def _offset_minutes(option: str, text: str) -> int:
    if text in {"Z", "z"}:
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[:2]) * _MINUTES + int(digits[2:])
    if int(digits[2:]) >= _MINUTES or minutes > _MAX_OFFSET_MINUTES:
        raise SourceOptionError(option, f"expected an offset from -18:00 to +18:00; found {text!r}")
    return -minutes if text[0] == "-" else minutes


class OptionInfo(NamedTuple):
    """An option as users see it: name, parser of its text, meaning, and default as text."""

    name: str
    parse: Parse
    meaning: str
    default: str = ""
    field: str = ""
    """Field of the options dataclass; empty for options stored in ``store_config``."""


def option(name: str, parse: Parse, meaning: str, default: str = "") -> Any:
    """Return a field that is an option; it defaults to the parsed ``default``, None if empty."""
    value = parse(name, default) if default else None
    return field(default=value, metadata=declared(name, parse, meaning, default))


def choice(name: str, meaning: str, *choices: Any) -> Any:
    """Return a field that takes one of several words or numbers and defaults to the first.

    ``{}`` in the meaning is replaced by all of them.
    """
    by_text = {str(each): each for each in choices}

    def parse(option: str, text: str) -> Any:
        return by_text[parse_choice(option, text, tuple(by_text))]

    return option(name, parse, meaning.replace("{}", ", ".join(by_text)), next(iter(by_text)))


def declared(name: str, parse: Parse, meaning: str, default: str = "") -> dict[str, OptionInfo]:
    """Return the metadata of a field that is an option whose default is not the parsed text."""
    return {_INFO: OptionInfo(name, parse, meaning, default)}


def options_of(kind: type[Any]) -> tuple[OptionInfo, ...]:
    """Return the options that are fields of a dataclass, in order."""
    found = ((each.name, each.metadata.get(_INFO)) for each in fields(kind))
    return tuple(info._replace(field=name) for name, info in found if info is not None)


_OF_A_CATALOG = frozenset({"comment", "external", "location", "owner", "provider"})


"""Names that ``CREATE TABLE … USING`` passes instead of the options."""


def given_options(
    options: Mapping[str, str], table: Sequence[OptionInfo], where: str = ""
) -> Given:
    """Return the given options by documented name: the declaration and the text of each.

    Parameters
    ----------
    options
        As Spark passes them: names in any case; a value of None means absent.

    Raises
    ------
    SourceOptionError
        An option is unknown, or given twice.
    """
    by_lower_name = {info.name.lower(): info for info in table}
    given: Given = {}
    for name, text in options.items():
        info = by_lower_name.get(name.lower())
        if info is None and name.lower() in _OF_A_CATALOG:
            raise SourceOptionError(
                name,
                "is set by Spark's catalog for a table, which loses the options of a Python "
                "source; use CREATE TEMPORARY VIEW … USING `rocketmq-store` OPTIONS (…)",
            )
        if info is None:
            names = [info.name for info in table]
            hint = did_you_mean(name, names) or f"; options are {', '.join(names)}"
            raise SourceOptionError(name, f"is unknown{where}{hint}")
        if info.name in given:
            raise SourceOptionError(
                info.name, "is given twice, with different upper and lower case"
            )
        if text is not None:
            given[info.name] = (info, str(text))
    return given


def option_values(given: Given) -> dict[str, Any]:
    """Return the parsed values of the given options, by field."""
    parsed = [(info, info.parse(name, text)) for name, (info, text) in given.items()]
    store_config = sorted((info.name, value) for info, value in parsed if not info.field)
    values = {info.field: value for info, value in parsed if info.field}
    return {**values, "store_config": tuple(store_config)}


def filled(kind: Callable[..., _Kind], values: Mapping[str, Any], **more: Any) -> _Kind:
    """Return a dataclass filled with the values that are its fields."""
    names = {each.name for each in fields(cast("Any", kind))}
    return kind(**{name: value for name, value in values.items() if name in names}, **more)


def check_together(given: Collection[str], one: str, other: str) -> None:
    """Raise if only one of two options is given."""
    for name, missing in ((one, other), (other, one)):
        if name in given and missing not in given:
            raise SourceOptionError(name, f"requires {missing!r}; give both or neither")
