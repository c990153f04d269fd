# SPDX-License-Identifier: Apache-2.0
"""A message as users see it, and its decoding from a stored record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from store_core.codec.compression import MAX_DECODED_BYTES, inflate
from store_core.codec.inner_columns import is_inner_batch, split_inner_batch
from store_core.codec.java_string import decode_utf8, java_integer
from store_core.codec.message_codec import split_keys, string_to_properties
from store_core.codec.message_id import format_host
from store_core.codec.message_id import message_id as offset_message_id
from store_core.layout import (
    COMPRESSED_FLAG,
    KEY_SEPARATOR,
    PROPERTY_INNER_BASE,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store_core.codec.message_codec import StoredRecord


class Message:
    """One message; its attributes are the columns of table ``messages``.

    Parameters
    ----------
    topic, body
        Name and content.
    tags, unique_key
        Properties TAGS and UNIQ_KEY. If given, they replace the property; empty removes it.
    keys
        Words of property KEYS, or the words in one string.
    properties
        All properties, in order.
    queue_id, flag, sys_flag, reconsume_times, prepared_transaction_offset
        As stored.
    born_timestamp, store_timestamp
        Milliseconds since the epoch; 0 if not set.
    born_host, store_host
        ``ip:port``, IPv6 as ``[ip]:port``.
    queue_offset, commit_log_offset, store_size, body_crc, message_id, store
        Set by the store.
    properties_raw
        The stored property bytes; None if the message does not come from a store.
    """

    def __init__(  # noqa: PLR0913 (one parameter a column)
        self,
        topic: str,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: Iterable[str] | None = None,
        unique_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        queue_id: int = 0,
        queue_offset: int = 0,
        commit_log_offset: int = 0,
        store_size: int = 0,
        message_id: str | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        body_crc: int = 0,
        reconsume_times: int = 0,
        born_timestamp: int = 0,
        store_timestamp: int = 0,
        born_host: str | None = None,
        store_host: str | None = None,
        prepared_transaction_offset: int = 0,
        store: str | None = None,
        properties_raw: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.properties: dict[str, str] = dict(properties or {})
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.commit_log_offset = commit_log_offset
        self.store_size = store_size
        self.message_id = message_id
        self.flag = flag
        self.sys_flag = sys_flag
        self.body_crc = body_crc
        self.reconsume_times = reconsume_times
        self.born_timestamp = born_timestamp
        self.store_timestamp = store_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.prepared_transaction_offset = prepared_transaction_offset
        self.store = store
        self.properties_raw = properties_raw
        if tags is not None:
            self._put(PROPERTY_TAGS, tags)
        if keys is not None:
            self._put(PROPERTY_KEYS, keys if isinstance(keys, str) else KEY_SEPARATOR.join(keys))
        if unique_key is not None:
            self._put(PROPERTY_UNIQ_KEY, unique_key)

    @property
    def tags(self) -> str | None:
        """Property TAGS."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> list[str] | None:
        """Words of property KEYS, in order, with repeats; None without the property."""
        value = self.properties.get(PROPERTY_KEYS)
        return None if value is None else split_keys(value)

    @property
    def unique_key(self) -> str | None:
        """Property UNIQ_KEY: the id that the producer's client gave."""
        return self.properties.get(PROPERTY_UNIQ_KEY)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]  # its properties can change

    def __repr__(self) -> str:
        return (
            f"Message(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, commit_log_offset={self.commit_log_offset}, "
            f"tags={self.tags!r}, keys={self.keys!r}, body={len(self.body)} bytes)"
        )

    def _put(self, name: str, value: str) -> None:
        if value:
            self.properties[name] = value
        else:  # a decoder drops empty values: an empty one means absent
            self.properties.pop(name, None)


def message_from_record(
    record: StoredRecord, store: str, *, max_decoded_bytes: int = MAX_DECODED_BYTES
) -> Message:
    """Return a record as one message with an inflated body, even if it is an inner batch.

    Raises
    ------
    CorruptBodyError
        The body cannot be inflated.
    """
    body = record.body
    if record.sys_flag & COMPRESSED_FLAG:
        body = inflate(body, record.sys_flag, max_decoded_bytes)
    message = stored_message(record, store)
    message.body = body
    return message


def stored_message(record: StoredRecord, store: str) -> Message:
    """Return a record as one message, its body as stored."""
    return Message(
        body=record.body,
        properties=string_to_properties(record.properties_raw),
        properties_raw=record.properties_raw,
        flag=record.flag,
        queue_offset=record.queue_offset,
        **_record_columns(record, store),
    )


def messages_from_record(
    record: StoredRecord,
    store: str,
    inflate_body: bool = True,
    *,
    max_decoded_bytes: int = MAX_DECODED_BYTES,
) -> list[Message]:
    """Return the messages of a record: one, or those of an inner batch.

    Parameters
    ----------
    max_decoded_bytes
        Most bytes that the body may inflate to.

    Raises
    ------
    CorruptBodyError
        The body cannot be inflated or unpacked.
    """
    properties = string_to_properties(record.properties_raw)
    columns = _record_columns(record, store)
    inner_batch = is_inner_batch(record.sys_flag)
    body = record.body
    if record.sys_flag & COMPRESSED_FLAG and (inflate_body or inner_batch):
        body = inflate(body, record.sys_flag, max_decoded_bytes)
    if not inner_batch:
        return [
            Message(
                body=body,
                properties=properties,
                properties_raw=record.properties_raw,
                flag=record.flag,
                queue_offset=record.queue_offset,
                **columns,
            )
        ]
    base = _inner_base(properties, record.queue_offset)
    return [
        Message(
            body=item.body,
            properties=string_to_properties(item.properties_raw),
            properties_raw=item.properties_raw,
            flag=item.flag,
            queue_offset=base + i,
            **columns,
        )
        for i, item in enumerate(split_inner_batch(body))
    ]


def _record_columns(record: StoredRecord, store: str) -> dict[str, Any]:
    return {
        "topic": decode_utf8(record.topic_bytes),
        "queue_id": record.queue_id,
        "commit_log_offset": record.commit_log_offset,
        "store_size": record.total_size,
        "message_id": offset_message_id(record.store_host, record.commit_log_offset),
        "sys_flag": record.sys_flag,
        "body_crc": record.body_crc,
        "reconsume_times": record.reconsume_times,
        "born_timestamp": record.born_timestamp,
        "store_timestamp": record.store_timestamp,
        "born_host": format_host(record.born_host),
        "store_host": format_host(record.store_host),
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "store": store,
    }


def _inner_base(properties: Mapping[str, str], queue_offset: int) -> int:
    text = properties.get(PROPERTY_INNER_BASE, "")
    base = java_integer(text, 64)
    return queue_offset if base is None else base
