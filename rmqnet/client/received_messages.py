# SPDX-License-Identifier: Apache-2.0
"""Decoding of the messages in a broker's answer: consecutive records, as stored."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.errors import RemotingFormatError
from store_core import native
from store_core.codec.compression import CorruptBodyError
from store_core.codec.java_string import decode_utf8
from store_core.codec.message_codec import decode_message, string_to_properties
from store_core.codec.message_id import format_host, message_id
from store_core.errors import CorruptRecordError
from store_core.layout import (
    BORNHOST_V6_FLAG,
    COMMIT_LOG_OFFSET_AT,
    COMPRESSED_FLAG,
    HEADER_IPV4,
    INNER_BATCH_FLAG,
    IPV4_HOST_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    PROPERTIES_LENGTH,
    PROPERTIES_LENGTH_BYTES,
    STOREHOST_V6_FLAG,
)
from store_core.message import Message, messages_from_record

if TYPE_CHECKING:
    from store_core.codec.message_codec import StoredRecord

logger = logging.getLogger(__name__)

_OFFSET_BYTES = 8
_NOT_PLAIN = COMPRESSED_FLAG | BORNHOST_V6_FLAG | STOREHOST_V6_FLAG | INNER_BATCH_FLAG
_unpack_length = PROPERTIES_LENGTH.struct.unpack_from


_Place = tuple[int, int, int, int, int, int, int, int]
"""Where a record, its body (with its end), its topic (with its end) and its properties begin, and
the record ends; and its queue offset."""
_END = 6


class ReceivedMessage(Message):
    """A message that decodes all but its topic, body and queue offset on first access.

    A listener seldom needs them all, and decoding them is most of the work per message. See
    `_MadeLater`: with ``__getattr__``, access to its other attributes would take three times as
    long.
    """

    __slots__ = ("_header",)

    def __init__(
        self,
        topic: str,
        body: bytes,
        properties_raw: bytes,
        store: str,
        queue_offset: int,
        header: bytes,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties_raw = properties_raw
        self.store = store
        self.queue_offset = queue_offset
        self._header = header

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._all() == (other._all() if isinstance(other, ReceivedMessage) else vars(other))

    __hash__ = None  # its properties can change

    def __reduce__(self) -> tuple[Any, ...]:
        return _message_with, (self._all(),)

    def _all(self) -> dict[str, Any]:
        for name in _MADE_LATER:
            getattr(self, name)
        return vars(self)


def _message_with(attributes: dict[str, Any]) -> Message:
    message = Message("")
    vars(message).update(attributes)
    return message


class _MadeLater:
    """An attribute that is decoded on first access; from then on, the message itself has it."""

    def __init__(self, name: str, make: Callable[[ReceivedMessage], Any]) -> None:
        self._name, self._make = name, make

    def __get__(self, message: ReceivedMessage, _: type[ReceivedMessage]) -> Any:
        value = vars(message)[self._name] = self._make(message)
        return value


def _number(field: str) -> Callable[[ReceivedMessage], int]:
    at, size = HEADER_IPV4.at(field), HEADER_IPV4.dtype[field].itemsize
    return lambda message: int.from_bytes(message._header[at : at + size], "big", signed=True)


def _host(field: str) -> Callable[[ReceivedMessage], bytes]:
    at = HEADER_IPV4.at(field)
    return lambda message: message._header[at : at + IPV4_HOST_BYTES]


_born_host, _store_host = _host("born_host"), _host("store_host")
_MADE_LATER: dict[str, Callable[[ReceivedMessage], Any]] = {
    "store_size": _number("total_size"),
    **{
        field: _number(field)
        for field in (
            *("body_crc", "queue_id", "flag", "commit_log_offset", "sys_flag", "born_timestamp"),
            *("store_timestamp", "reconsume_times", "prepared_transaction_offset"),
        )
    },
    "properties": lambda message: string_to_properties(message.properties_raw or b""),
    "born_host": lambda message: format_host(_born_host(message)),
    "store_host": lambda message: format_host(_store_host(message)),
    "message_id": lambda message: message_id(_store_host(message), message.commit_log_offset),
}
for _name, _make in _MADE_LATER.items():
    setattr(ReceivedMessage, _name, _MadeLater(_name, _make))


def messages_from_body(body: bytes, store: str, asked_for: str = "") -> list[Message]:
    """Return the messages of an answer: bodies inflated, batches divided.

    Parameters
    ----------
    body
        Records of version 1 or 2, hosts of IPv4 or IPv6.

    Raises
    ------
    RemotingFormatError
        A record is damaged, or the body of a batch cannot be inflated; the text names the store
        and the byte in the answer. Any other body that cannot be inflated is logged and returned
        as stored.
    """
    messages: list[Message] = []
    topics: dict[bytes, str] = {}
    position = 0
    try:
        while position < len(body):
            places = _plain_records(body, position)
            if places:
                messages += [_message(body, place, store, topics) for place in places]
                position = places[-1][_END]
                continue
            record = _record_at(body, position, store)
            messages += _messages_of(record, store, asked_for)
            position += record.total_size
    except (CorruptRecordError, CorruptBodyError) as err:
        reason = err.reason if isinstance(err, CorruptRecordError) else str(err)
        raise RemotingFormatError(
            _damage(store, asked_for, len(messages), position, reason)
        ) from err
    return messages


def _message(body: bytes, place: _Place, store: str, topics: dict[bytes, str]) -> ReceivedMessage:
    start, body_at, body_end, topic_at, topic_end, properties_at, end, queue_offset = place
    topic_bytes = body[topic_at:topic_end]
    topic = topics.get(topic_bytes)
    if topic is None:
        topic = topics[topic_bytes] = decode_utf8(topic_bytes)
    return ReceivedMessage(
        topic,
        body[body_at:body_end],
        body[properties_at:end],
        store,
        queue_offset,
        body[start:body_at],
    )


def _plain_records(body: bytes, position: int) -> list[_Place]:
    """Return where consecutive plain records are (version 1, IPv4, not compressed, no batch).

    Their messages take a third of the time of the general path, to which other records are left,
    in particular damaged ones.
    """
    kernel = native.kernel
    if kernel is not None:
        found: list[_Place] = kernel.plain_records(body, position, _NOT_PLAIN)
        return found
    places = []
    place = _plain_record(body, position)
    while place is not None:
        places.append(place)
        place = _plain_record(body, place[_END])
    return places


def _plain_record(body: bytes, position: int) -> _Place | None:
    body_at = position + HEADER_IPV4.size
    if body_at >= len(body):
        return None
    header = HEADER_IPV4.unpack(body, position)
    body_end, end = body_at + header.body_length, position + header.total_size
    if header.magic_code != MESSAGE_MAGIC_CODE or header.sys_flag & _NOT_PLAIN:
        return None
    if not body_at <= body_end < end <= len(body):
        return None
    topic_at = body_end + 1
    topic_end = topic_at + body[body_end]
    properties_at = topic_end + PROPERTIES_LENGTH_BYTES
    if topic_end - topic_at > MAX_TOPIC_BYTES_V1 or properties_at > end:
        return None
    if _unpack_length(body, topic_end)[0] != end - properties_at:
        return None
    return position, body_at, body_end, topic_at, topic_end, properties_at, end, header.queue_offset


def _messages_of(record: StoredRecord, store: str, asked_for: str) -> list[Message]:
    """Return a record's messages; a body that cannot be inflated is returned as stored.

    Any producer can send such a body, which must not stop the queue for all its readers.
    """
    try:
        return messages_from_record(record, store)
    except CorruptBodyError as err:
        if record.sys_flag & INNER_BATCH_FLAG:  # only brokers mark a record as a batch
            raise
        logger.warning(
            "%s: its answer%s: the body at offset %d is returned as stored: %s",
            store,
            f" for {asked_for}" if asked_for else "",
            record.queue_offset,
            err,
        )
        return messages_from_record(record, store, inflate_body=False)


def _record_at(body: bytes, position: int, store: str) -> StoredRecord:
    if position + HEADER_IPV4.size > len(body):
        left = len(body) - position
        raise CorruptRecordError(f"only {left} bytes are left for a record", store, position)
    # Only the broker knows the record's offset in its log, so the record's own field is used.
    at = position + COMMIT_LOG_OFFSET_AT
    commit_log_offset = int.from_bytes(body[at : at + _OFFSET_BYTES], "big", signed=True)
    return decode_message(body, position, commit_log_offset, store)


def _damage(store: str, asked_for: str, before: int, position: int, reason: str) -> str:
    return (
        f"{store}: its answer{f' for {asked_for}' if asked_for else ''} contains a damaged record "
        f"at byte {position}, after {before} messages: {reason}"
    )
