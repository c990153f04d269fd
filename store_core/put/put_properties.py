# SPDX-License-Identifier: Apache-2.0
"""The property string of a message to put, and the properties that the store itself writes.

Source: RocketMQ ``LmqDispatch.wrapLmqDispatch``, ``BatchConsumeQueue.assignQueueOffset`` (release
5.3.3). Those re-encode all properties in hash map order; here the others stay in their places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from store_core.arrow import any_row_holds, pa, pc
from store_core.codec.java_string import java_integer, java_split
from store_core.codec.message_codec import string_to_properties
from store_core.codec.property_columns import PropertyColumns
from store_core.codec.record_encoder import without_stored_crc
from store_core.layout import (
    LMQ_PREFIX,
    NAME_VALUE_SEPARATOR,
    PROPERTY_DELAY,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    PROPERTY_SEPARATOR,
    SCHEDULE_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array
    from store_core.message import Message

    Int64s = npt.NDArray[np.int64]

PROPERTY_WAIT = "WAIT"
_NAME_VALUE = chr(NAME_VALUE_SEPARATOR)
_SEPARATOR = chr(PROPERTY_SEPARATOR)
_SEPARATOR_BYTES = _SEPARATOR.encode()
_WAIT = (PROPERTY_WAIT + _NAME_VALUE).encode()
_WAIT_TRUE = _WAIT + b"true" + _SEPARATOR_BYTES
INNER_MARK = b"INNER_"
"""Prefix of the names of all properties that are reserved in every topic."""
MULTI_SEPARATOR = ","
_SHOWN_CHARACTERS = 40
_MAX_NAME_BYTES = 255
_MAX_QUEUE_OFFSET = (1 << 63) // 20  # at 20 bytes a unit, the last that a file name can express


def property_string(message: Message) -> bytes:
    """Return the bytes to store: ``properties_raw`` if given, else the properties.

    The CRC of another record at their end is removed. Lone surrogates become ``?``, as in Java.

    Raises
    ------
    TypeError
        A name or a value is not a string.
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
    return f"property {name!r} is {value!r}: names and values of properties must be strings"


def property_value(properties_raw: bytes, name: str) -> str | None:
    """Return the value that a decoder would see."""
    if name.encode() not in properties_raw:
        return None
    return string_to_properties(properties_raw).get(name)


def waits_for_flush(properties_raw: bytes) -> bool:
    """Return whether the sender waits: True unless property WAIT has a value other than ``true``.

    Source: ``Message.isWaitStoreMsgOK``.
    """
    if properties_raw.count(_WAIT) == properties_raw.count(_WAIT_TRUE):
        return True  # nearly every message; parsing the string costs 5 us
    value = property_value(properties_raw, PROPERTY_WAIT)
    return value is None or value.lower() == "true"


def set_property(properties_raw: bytes, name: str, value: str) -> bytes:
    """Return the string with a name set to one value, in its place or, if new, at the end."""
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
    """Return the queues that INNER_MULTI_DISPATCH names; none if it is blank."""
    value = property_value(properties_raw, PROPERTY_INNER_MULTI_DISPATCH)
    if value is None or not value.strip():
        return []
    return java_split(value, MULTI_SEPARATOR)


def with_light_offsets(
    properties_raw: bytes, names: list[str], next_light: Callable[[str], int]
) -> tuple[bytes, list[str]]:
    """Add the next offsets of light queues to a property string; return it and the light queues.

    Release 5.3.3 tries to drop WAIT from such messages but stores it nonetheless; so does this.
    """
    texts = [str(next_light(n)) if n.startswith(LMQ_PREFIX) else "" for n in names]
    value = MULTI_SEPARATOR.join(texts)
    light = list(dict.fromkeys(name for name in names if name.startswith(LMQ_PREFIX)))
    return set_property(properties_raw, PROPERTY_INNER_MULTI_QUEUE_OFFSET, value), light


# At a record with any other text there, RocketMQ's next start ends the log and cuts off everything
# after it, or its dispatch stops for ever. Producers cannot put such a record, but a program that
# writes to a store can, so every way to write checks this.
#
# Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``setBatchSizeIfNeeded``,
# ``ConsumeQueue.multiDispatchLmqQueue`` (release 5.3.3; 4.9.7 is alike for delay levels and light
# queues).
class ReservedProperty(NamedTuple):
    """A property that has to be a number.

    Attributes
    ----------
    topic
        The only topic in which a broker reads it; all topics if None.
    beside
        A broker reads it only together with this property; always if None.
    """

    name: str
    bits: int
    topic: str | None = None
    beside: str | None = None


RESERVED_PROPERTIES = (
    ReservedProperty(PROPERTY_INNER_NUM, 16),
    ReservedProperty(PROPERTY_INNER_BASE, 64, beside=PROPERTY_INNER_NUM),
    ReservedProperty(PROPERTY_DELAY, 32, topic=SCHEDULE_TOPIC),
)
"""All that are one number. Light queues' names and offsets are lists: `light_fault` checks them."""


def delay_level(text: str | None) -> tuple[int, str | None]:
    """Return the delay level in a value of property DELAY, and what is wrong with the value.

    Without the property the level is 0. A broker's put fails if the value is not a number.
    """
    if text is None:
        return 0, None
    level = java_integer(text, 32)
    if level is None:
        return 0, f"property {PROPERTY_DELAY} is {_short(text)}; a delay level is a whole number"
    return level, None


def reserved_fault(topic: str, properties_raw: bytes) -> str | None:
    """Return what is wrong with the reserved properties of a message; None if nothing is."""
    if INNER_MARK not in properties_raw and topic != SCHEDULE_TOPIC:
        return None
    properties = string_to_properties(properties_raw)
    for reserved in RESERVED_PROPERTIES:
        if reserved.topic not in (None, topic):
            continue
        if reserved.beside is not None and reserved.beside not in properties:
            continue
        fault = _number_fault(reserved, properties.get(reserved.name))
        if fault is not None:
            return fault
    return light_fault(properties)


def reserved_faults(
    properties_raw: Array,
    topics: Sequence[str],
    topic_code: npt.NDArray[np.int32],
    marked: Int64s | None = None,
) -> dict[int, str]:
    """Return `reserved_fault` for all rows of a column that have a fault, by row.

    Rows with a name that begins with INNER_ are few, and checked one by one; of delay levels, each
    distinct text is checked once.

    Parameters
    ----------
    topics, topic_code
        Names, and each row's index into them; below 0 if a row has none.
    """
    marked = marked_rows(properties_raw) if marked is None else marked
    faults = {
        row: fault
        for row in marked.tolist()
        if topic_code[row] >= 0
        and (fault := reserved_fault(topics[topic_code[row]], properties_raw[row].as_py()))
    }
    for reserved in RESERVED_PROPERTIES:
        if reserved.topic is not None and reserved.topic in topics:
            rows = np.flatnonzero(topic_code == list(topics).index(reserved.topic))
            for row, fault in _column_faults(reserved, properties_raw, rows).items():
                faults.setdefault(row, fault)
    return faults


def marked_rows(properties_raw: Array) -> Int64s:
    """Return the rows that contain `INNER_MARK`; usually one search over all shows none."""
    if not any_row_holds(properties_raw, INNER_MARK, b"R"):
        return np.empty(0, np.int64)
    found = pc.match_substring(properties_raw, INNER_MARK)
    rows: Int64s = np.flatnonzero(found.to_numpy(zero_copy_only=False))
    return rows


def light_fault(properties: Mapping[str, str]) -> str | None:
    """Return what keeps a broker from dispatching a message to further queues; None if nothing.

    A broker skips names with a slash, and all names if there are not as many offsets as names.
    """
    listed = properties.get(PROPERTY_INNER_MULTI_DISPATCH, "")
    numbers = properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "")
    names, texts = (java_split(text, MULTI_SEPARATOR) for text in (listed, numbers))
    if not listed.strip() or not numbers.strip() or len(names) != len(texts):
        return None
    for name, text in zip(names, texts):
        if "/" in name:
            continue
        if name in ("", ".", "..") or "\0" in name or len(name.encode()) > _MAX_NAME_BYTES:
            return (
                f"property {PROPERTY_INNER_MULTI_DISPATCH} names {_short(name)}, which cannot be "
                "a queue"
            )
        queue_offset = java_integer(text, 64)
        if queue_offset is None or not 0 <= queue_offset < _MAX_QUEUE_OFFSET:
            return (
                f"property {PROPERTY_INNER_MULTI_QUEUE_OFFSET} has {_short(text)} for queue "
                f"{_short(name)} (light queues begin with {LMQ_PREFIX}); it must be an offset"
            )
    return None


def _column_faults(
    reserved: ReservedProperty, properties_raw: Array, rows: Int64s
) -> dict[int, str]:
    values = PropertyColumns(properties_raw.take(pa.array(rows))).values_of(reserved.name)
    encoded = values.dictionary_encode()
    faults = [_number_fault(reserved, text) for text in encoded.dictionary.to_pylist()]
    if not any(faults):
        return {}
    code = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    bad = np.array([*(fault is not None for fault in faults), False])[code]
    return {int(rows[at]): faults[code[at]] or "" for at in np.flatnonzero(bad).tolist()}


def _number_fault(reserved: ReservedProperty, text: str | None) -> str | None:
    if text is None or java_integer(text, reserved.bits) is not None:
        return None
    most = (1 << reserved.bits - 1) - 1
    return (
        f"property {reserved.name} is {_short(text)}; a broker reads it as a whole number from "
        f"{-most - 1} to {most}, and would end the log at this message"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
