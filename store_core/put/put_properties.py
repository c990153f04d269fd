"""The property string of a message that is put, and what the store itself writes into it.

Source: RocketMQ ``LmqDispatch.wrapLmqDispatch``, ``BatchConsumeQueue.assignQueueOffset`` (release
5.3.3). Those encode all properties anew in the order of a hash map; here the others stay where
they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from store_core.codec.encoded_records import without_stored_crc
from store_core.codec.java_string import java_split
from store_core.codec.properties import string_to_properties
from store_core.layout.message import (
    LMQ_PREFIX,
    NAME_VALUE_SEPARATOR,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_SEPARATOR,
)
from store_core.put.reserved_properties import MULTI_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.message import Message

PROPERTY_WAIT = "WAIT"
_NAME_VALUE = chr(NAME_VALUE_SEPARATOR)
_SEPARATOR = chr(PROPERTY_SEPARATOR)
_SEPARATOR_BYTES = _SEPARATOR.encode()
_WAIT = (PROPERTY_WAIT + _NAME_VALUE).encode()
_WAIT_TRUE = _WAIT + b"true" + _SEPARATOR_BYTES


def property_string(message: Message) -> bytes:
    """Return the bytes to store: ``properties_raw`` where given, else the properties.

    The CRC of another record at their end is left out. Lone surrogates become ``?``, as in Java.

    Raises
    ------
    TypeError
        A name or a value is no string.
    """
    raw = message.properties_raw
    if raw is not None:
        return without_stored_crc(raw)
    properties = message.properties
    if not properties:
        return b""
    parts: list[str] = []
    for name, value in properties.items():
        parts += (name, _NAME_VALUE, value, _SEPARATOR)
    try:
        return without_stored_crc("".join(parts).encode("utf-8", "replace"))
    except TypeError:
        raise TypeError(_what_is_no_text(properties)) from None


def _what_is_no_text(properties: Mapping[Any, Any]) -> str:
    name, value = next(
        item for item in properties.items() if not all(isinstance(part, str) for part in item)
    )
    return f"property {name!r} is {value!r}: names and values of properties are strings"


def property_value(properties_raw: bytes, name: str) -> str | None:
    """Return the value that a decoder would see."""
    if name.encode() not in properties_raw:
        return None
    return string_to_properties(properties_raw).get(name)


def waits_for_flush(properties_raw: bytes) -> bool:
    """Say whether the sender waits; only property WAIT says no, with any value but ``true``.

    Source: ``Message.isWaitStoreMsgOK``.
    """
    if properties_raw.count(_WAIT) == properties_raw.count(_WAIT_TRUE):
        return True  # as of nearly every message; taking the string apart costs 5 us
    value = property_value(properties_raw, PROPERTY_WAIT)
    return value is None or value.lower() == "true"


def set_property(properties_raw: bytes, name: str, value: str) -> bytes:
    """Return the string with one value of a name: in its place, or at the end."""
    prefix = name.encode() + _NAME_VALUE.encode()
    new = prefix + value.encode()
    entries = [e for e in properties_raw.split(_SEPARATOR_BYTES) if e]
    places = [i for i, entry in enumerate(entries) if entry.startswith(prefix)]
    for place in reversed(places[1:]):
        del entries[place]
    if places:
        entries[places[0]] = new
    else:
        entries.append(new)
    return b"".join([entry + _SEPARATOR_BYTES for entry in entries])


def queue_names(properties_raw: bytes) -> list[str]:
    """Return the queues that INNER_MULTI_DISPATCH names; none where it is blank."""
    value = property_value(properties_raw, PROPERTY_INNER_MULTI_DISPATCH)
    if value is None or not value.strip():
        return []
    return java_split(value, MULTI_SEPARATOR)


def with_light_offsets(
    properties_raw: bytes, names: list[str], next_light: Callable[[str], int]
) -> tuple[bytes, list[str]]:
    """Put the next offsets of light queues into a property string.

    Release 5.3.3 wants to drop WAIT from such messages and stores it nonetheless; so does this.

    Returns
    -------
    properties_raw, light
        ``light`` are the queues to advance, each once: RocketMQ advances a queue that is named
        twice by two, though it gets one unit.
    """
    texts = [str(next_light(n)) if n.startswith(LMQ_PREFIX) else "" for n in names]
    value = MULTI_SEPARATOR.join(texts)
    light = list(dict.fromkeys(name for name in names if name.startswith(LMQ_PREFIX)))
    return set_property(properties_raw, PROPERTY_INNER_MULTI_QUEUE_OFFSET, value), light
