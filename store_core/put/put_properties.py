"""The property string of a message that is put, and what the store itself writes into it.

Source: RocketMQ ``LmqDispatch.wrapLmqDispatch``, ``BatchConsumeQueue.assignQueueOffset`` (release
5.3.3). Those encode all properties anew in the order of a hash map; here the others stay where
they were.
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
"""What the names of all reserved properties begin with that count in every topic."""
MULTI_SEPARATOR = ","
_SHOWN_CHARACTERS = 40
_MAX_NAME_BYTES = 255
_MAX_QUEUE_OFFSET = (1 << 63) // 20  # units of 20 bytes: the last that a file can be named for


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
    """
    texts = [str(next_light(n)) if n.startswith(LMQ_PREFIX) else "" for n in names]
    value = MULTI_SEPARATOR.join(texts)
    light = list(dict.fromkeys(name for name in names if name.startswith(LMQ_PREFIX)))
    return set_property(properties_raw, PROPERTY_INNER_MULTI_QUEUE_OFFSET, value), light


# RocketMQ's next start ends the log at a record that has another text there, and cuts off all that
# follows; or its dispatch stands still there for ever. Producers cannot put such a record, but who
# writes to a store can: so every way in asks here.
#
# Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``setBatchSizeIfNeeded``,
# ``ConsumeQueue.multiDispatchLmqQueue`` (release 5.3.3; of delay levels and light queues the same
# in 4.9.7).
class ReservedProperty(NamedTuple):
    """A property that has to be a number.

    Attributes
    ----------
    topic
        The only topic in which it is looked at; None: all.
    beside
        The property without which it is not looked at; None: always.
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


"""All of them that hold one number. Light queues' names and offsets are lists: `light_fault`."""


def delay_level(text: str | None) -> tuple[int, str | None]:
    """Return the delay level of a value of property DELAY, and what is wrong with it.

    Without the property the level is 0. A broker's put fails where it is no number.
    """
    if text is None:
        return 0, None
    level = java_integer(text, 32)
    if level is None:
        return 0, f"property {PROPERTY_DELAY} is {_short(text)}; a delay level is a whole number"
    return level, None


def reserved_fault(topic: str, properties_raw: bytes) -> str | None:
    """Return what is wrong with the reserved properties of a message; None: nothing."""
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
    """Return the same of all rows of a column, by row.

    Rows with one of the names that begin with INNER_ are few, and looked at one by one; of the
    delay levels each distinct text is.

    Parameters
    ----------
    topics, topic_code
        Names, and which of them each row has; below 0: none.
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
    """Return the rows in which `INNER_MARK` occurs: as a rule one search over all finds none."""
    if not any_row_holds(properties_raw, INNER_MARK, b"R"):
        return np.empty(0, np.int64)
    found = pc.match_substring(properties_raw, INNER_MARK)
    rows: Int64s = np.flatnonzero(found.to_numpy(zero_copy_only=False))
    return rows


def light_fault(properties: Mapping[str, str]) -> str | None:
    """Return what keeps a broker from dispatching a message to further queues; None: nothing.

    It skips names with a slash, and all where there are not as many offsets as names.
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
            return f"property {PROPERTY_INNER_MULTI_DISPATCH} names {_short(name)}, no queue"
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
        f"{-most - 1} to {most}, and would end the log there"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")
