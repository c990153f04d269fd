"""Messages inside the body of an inner batch.

Source: RocketMQ ``MessageDecoder.decodeMessages``, ``decodeMessage`` (release 5.3.3), which go by
the lengths of body and properties; total size, magic code and CRC of an item are ignored.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.codec.compression import CorruptBodyError
from store_core.layout.message import (
    INNER_BATCH_FLAG,
    INNER_ITEM,
    NEED_UNWRAP_FLAG,
    PROPERTIES_LENGTH_BYTES,
)

if TYPE_CHECKING:
    import numpy.typing as npt

_INNER_FLAGS = NEED_UNWRAP_FLAG | INNER_BATCH_FLAG
_FLAG_AND_BODY_LENGTH = struct.Struct(">ii")
_FLAG_AT = INNER_ITEM.at("flag")
_MAX_ITEMS = 32767  # INNER_NUM is a Java short, as is the batch size of a queue's unit


class InnerItem(NamedTuple):
    """One message of an inner batch."""

    flag: int
    body: bytes
    properties_raw: bytes


def is_inner_batch(sys_flag: int) -> bool:
    """Say whether consumers take the body apart: both bits are set, as ``PullAPIWrapper`` asks."""
    return sys_flag & _INNER_FLAGS == _INNER_FLAGS


def split_inner_batch(body: bytes) -> list[InnerItem]:
    """Return the messages in an (inflated) body; `CorruptBodyError` if lengths contradict it."""
    spans = inner_item_spans(body, 0, len(body)).tolist()
    return [
        InnerItem(flag, bytes(body[at : at + length]), bytes(body[p_at : p_at + p_length]))
        for flag, at, length, p_at, p_length in spans
    ]


def inner_item_spans(buf: Any, start: int, end: int) -> npt.NDArray[np.int64]:
    """Return where the messages of one inner batch lie.

    Parameters
    ----------
    buf
        Any buffer of bytes; ``0 <= start <= end <= len(buf)``.
    start, end
        Where the (inflated) body lies in it, end exclusive.

    Returns
    -------
    spans
        Shape (messages, 5): flag, body start, body length, properties start, properties length;
        starts are positions in ``buf``.

    Raises
    ------
    CorruptBodyError
        A length is negative or leads after ``end``, or there are more messages than RocketMQ can
        count in a batch.
    """
    view = memoryview(buf)
    head_bytes = INNER_ITEM.size
    flag_and_length, two_bytes = _FLAG_AND_BODY_LENGTH.unpack_from, struct.Struct(">h").unpack_from
    spans = array("q")
    at, items = start, 0
    while at < end:
        body_at = at + head_bytes
        if body_at + PROPERTIES_LENGTH_BYTES > end:
            raise _damaged(items, at - start, f"only {end - at} bytes are left")
        flag, body_length = flag_and_length(view, at + _FLAG_AT)
        properties_at = body_at + body_length + PROPERTIES_LENGTH_BYTES
        if body_length < 0 or properties_at > end:
            raise _damaged(items, at - start, f"body length {body_length}")
        (properties_length,) = two_bytes(view, properties_at - PROPERTIES_LENGTH_BYTES)
        if properties_length < 0 or properties_at + properties_length > end:
            raise _damaged(items, at - start, f"properties length {properties_length}")
        spans.extend((flag, body_at, body_length, properties_at, properties_length))
        at = properties_at + properties_length
        items += 1
        if items > _MAX_ITEMS:
            raise CorruptBodyError(f"the body holds more than {_MAX_ITEMS} messages")
    return np.array(spans, np.int64).reshape(-1, 5)


def _damaged(item: int, position: int, found: str) -> CorruptBodyError:
    return CorruptBodyError(f"inner message {item} at byte {position} of the body: {found}")
