"""The property string of a message: names, values, keys, and the CRC at its end.

Source: RocketMQ ``MessageDecoder.string2messageProperties``, ``messageProperties2String``,
``createCrc32``, ``IndexService.buildIndex`` (release 5.3.3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store_core.codec.crc32 import crc32
from store_core.codec.java_string import decode_utf8
from store_core.layout.message import (
    CRC32_PROPERTY_BYTES,
    KEY_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    PROPERTY_CRC32,
    PROPERTY_SEPARATOR,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME_VALUE = bytes([NAME_VALUE_SEPARATOR])
_SEPARATOR = bytes([PROPERTY_SEPARATOR])
# Ten digits leave no room for the zero byte of a length below 256: what matches lies wholly
# inside the properties. What comes before is a separator or the length (20) of the properties.
_CRC_TAIL = re.compile(
    b"(?:"
    + _SEPARATOR
    + b"|\\x00"
    + bytes([CRC32_PROPERTY_BYTES])
    + b")"
    + re.escape(PROPERTY_CRC32.encode())
    + _NAME_VALUE
    + b"([0-9]{10})"
    + _SEPARATOR
)


def split_properties(data: bytes) -> list[tuple[str, str]]:
    """Return the names and values that RocketMQ accepts, in stored order, with repeats.

    Entries without a separator, a name or a value are dropped; a value may hold further U+0001.
    Both separators are ASCII, so cutting the bytes is the same as cutting the decoded text.
    """
    pairs = []
    for entry in data.split(_SEPARATOR):
        name, _, value = entry.partition(_NAME_VALUE)
        if name and value:
            pairs.append((decode_utf8(name), decode_utf8(value)))
    return pairs


def string_to_properties(data: bytes) -> dict[str, str]:
    """Return the properties as RocketMQ decodes them: of a repeated name the last value wins."""
    return dict(split_properties(data))


def properties_to_bytes(pairs: Iterable[tuple[str, str]], closing_separator: bool = True) -> bytes:
    """Encode names and values in the given order.

    Releases 4.9.1 to 5.1.x leave the closing separator out; readers accept both.
    Lone surrogates become ``?``, as in Java.
    """
    data = _SEPARATOR.join(
        name.encode(errors="replace") + _NAME_VALUE + value.encode(errors="replace")
        for name, value in pairs
    )
    return data + _SEPARATOR if data and closing_separator else data


def split_keys(value: str) -> list[str]:
    """Return the words of a KEYS value, as the index sees them: in order, with repeats."""
    return [word for word in value.split(KEY_SEPARATOR) if word]


def crc_digits(crc: int) -> bytes:
    """Return a CRC as the ten digits of ``__CRC32#``: the least significant digit first."""
    return f"{crc:010d}"[::-1].encode()


def verify_property_crc(record: bytes) -> bool | None:
    """Compare the ``__CRC32#`` tail of a whole record with the bytes before it.

    Returns
    -------
    good
        None when the record has no such tail.
    """
    tail_at = len(record) - CRC32_PROPERTY_BYTES
    match = _CRC_TAIL.search(record, max(tail_at - 2, 0))
    if match is None or match.end() != len(record):
        return None
    return match.group(1) == crc_digits(crc32(record[:tail_at]) & 0x7FFFFFFF)
