"""Queue offsets that stand in the properties of a record: inner batches and light queues.

Source: RocketMQ ``BatchConsumeQueue.assignQueueOffset``, ``LmqDispatch`` (release 5.3.3).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store_core.codec.properties import string_to_properties
from store_core.layout.message import (
    INNER_BATCH_FLAG,
    LMQ_PREFIX,
    MAX_PROPERTIES_BYTES,
    PROPERTIES_LENGTH,
    PROPERTY_INNER_BASE,
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_INNER_NUM,
    RECORD_PREFIX,
)
from store_core.put.put_properties import set_property
from store_core.put.reserved_properties import MULTI_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_BATCH = 32767
_SIZE_BYTES = RECORD_PREFIX.at("magic_code")
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)


def batch_size(sys_flag: int, properties_raw: bytes) -> int:
    """Return how many messages an inner batch holds; 0 for any other record."""
    if not sys_flag & INNER_BATCH_FLAG:
        return 0
    text = string_to_properties(properties_raw).get(PROPERTY_INNER_NUM, "")
    count = int(text) if _DIGITS.fullmatch(text) else 0
    return count if count <= _MAX_BATCH else 0


def light_offsets(properties_raw: bytes) -> dict[str, int]:
    """Return the queue offset that a record has in each light queue that it is put into."""
    properties = string_to_properties(properties_raw)
    names = properties.get(PROPERTY_INNER_MULTI_DISPATCH, "").split(MULTI_SEPARATOR)
    texts = properties.get(PROPERTY_INNER_MULTI_QUEUE_OFFSET, "").split(MULTI_SEPARATOR)
    if len(names) != len(texts):
        return {}
    pairs = zip(names, texts)
    return {n: int(t) for n, t in pairs if n.startswith(LMQ_PREFIX) and _DIGITS.fullmatch(t)}


def with_new_offsets(
    properties_raw: bytes, base: int, new_light: Mapping[str, int], *, in_batch_queue: bool
) -> bytes:
    """Return the properties with the offsets of the new store; names that are absent stay so."""
    properties = string_to_properties(properties_raw)
    if in_batch_queue and PROPERTY_INNER_BASE in properties:
        properties_raw = set_property(properties_raw, PROPERTY_INNER_BASE, str(base))
    if new_light:
        names = properties[PROPERTY_INNER_MULTI_DISPATCH].split(MULTI_SEPARATOR)
        texts = properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET].split(MULTI_SEPARATOR)
        value = [str(new_light[n]) if n in new_light else t for n, t in zip(names, texts)]
        properties_raw = set_property(
            properties_raw, PROPERTY_INNER_MULTI_QUEUE_OFFSET, MULTI_SEPARATOR.join(value)
        )
    return properties_raw


def with_properties(record: bytes, old_bytes: int, properties_raw: bytes) -> bytes:
    """Return a record with other properties, and the lengths that go with them.

    Parameters
    ----------
    record, old_bytes
        The record, and the bytes of its present properties.
    properties_raw
        The new ones.

    Raises
    ------
    ValueError
        The new properties are too long.
    """
    if len(properties_raw) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"the properties would have {len(properties_raw)} bytes")
    head = bytearray(record[: len(record) - old_bytes - PROPERTIES_LENGTH.size])
    size = len(head) + PROPERTIES_LENGTH.size + len(properties_raw)
    head[:_SIZE_BYTES] = size.to_bytes(_SIZE_BYTES, "big")
    return bytes(head) + PROPERTIES_LENGTH.pack(value=len(properties_raw)) + properties_raw
