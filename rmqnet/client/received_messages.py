# SPDX-License-Identifier: Apache-2.0
"""Decoding of the messages in a broker's answer: consecutive records, as stored."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.errors import RemotingFormatError
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
_HEADER_BYTES = HEADER_IPV4.size
_unpack_header = HEADER_IPV4.struct.unpack_from
_unpack_length = PROPERTIES_LENGTH.struct.unpack_from


class ReceivedMessage(Message):
    """A message that decodes its properties, hosts and offset id on first access.

    A listener seldom needs them all, and decoding them is most of the work per message.
    """

    __slots__ = ("_born_host_raw", "_store_host_raw")

    def __init__(  # noqa: PLR0913, PLR0917 (the fields of a record in their order)
        self,
        topic: str,
        body: bytes,
        properties_raw: bytes,
        store: str,
        store_size: int,
        body_crc: int,
        queue_id: int,
        flag: int,
        queue_offset: int,
        commit_log_offset: int,
        sys_flag: int,
        born_timestamp: int,
        born_host_raw: bytes,
        store_timestamp: int,
        store_host_raw: bytes,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties_raw = properties_raw
        self.store = store
        self.store_size = store_size
        self.body_crc = body_crc
        self.queue_id = queue_id
        self.flag = flag
        self.queue_offset = queue_offset
        self.commit_log_offset = commit_log_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.store_timestamp = store_timestamp
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self._born_host_raw = born_host_raw
        self._store_host_raw = store_host_raw

    def __getattr__(self, name: str) -> Any:
        """Decode an attribute on first access."""
        make = _MADE_LATER.get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = make(self)
        setattr(self, name, value)
        return value

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


_MADE_LATER: dict[str, Callable[[ReceivedMessage], Any]] = {
    "properties": lambda message: string_to_properties(message.properties_raw or b""),
    "born_host": lambda message: format_host(message._born_host_raw),
    "store_host": lambda message: format_host(message._store_host_raw),
    "message_id": lambda message: message_id(message._store_host_raw, message.commit_log_offset),
}


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
            message = _plain_message(body, position, store, topics)
            if message is not None:
                messages.append(message)
                position += message.store_size
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


def _plain_message(
    body: bytes, position: int, store: str, topics: dict[bytes, str]
) -> ReceivedMessage | None:
    """Return the message of a plain record (version 1, IPv4 hosts, not compressed, no batch).

    This takes a third of the time of the general path. None leaves the record, in particular a
    damaged one, to the general path.
    """
    body_at = position + _HEADER_BYTES
    if body_at >= len(body):
        return None
    size, magic_code, *fields, body_length = _unpack_header(body, position)
    topic_length_at, end = body_at + body_length, position + size
    if magic_code != MESSAGE_MAGIC_CODE or fields[5] & _NOT_PLAIN or body_length < 0:
        return None
    if not topic_length_at < end <= len(body):
        return None
    topic_length = body[topic_length_at]
    properties_length_at = topic_length_at + 1 + topic_length
    properties_at = properties_length_at + PROPERTIES_LENGTH_BYTES
    if topic_length > MAX_TOPIC_BYTES_V1 or properties_at > end:
        return None
    if _unpack_length(body, properties_length_at)[0] != end - properties_at:
        return None
    topic_bytes = body[topic_length_at + 1 : properties_length_at]
    topic = topics.get(topic_bytes)
    if topic is None:
        topic = topics[topic_bytes] = decode_utf8(topic_bytes)
    return ReceivedMessage(
        topic, body[body_at:topic_length_at], body[properties_at:end], store, size, *fields
    )


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
