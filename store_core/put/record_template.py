# SPDX-License-Identifier: Apache-2.0
"""Encodes a message's record fast, before its place in the log is known.

Equal to ``message_codec.encode_message`` with zeros in the fields that the append fills in; a
property test checks that. That function takes 4 us by field names, this one 1 us by position.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from store_core import native
from store_core.codec.crc32 import crc32
from store_core.codec.message_id import parse_host
from store_core.layout import (
    BORNHOST_V6_FLAG,
    HEADERS,
    IPV4_HOST_BYTES,
    IPV6_HOST_BYTES,
    MAX_TOPIC_BYTES_V1,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    PROPERTIES_LENGTH,
    STOREHOST_V6_FLAG,
    TOPIC_LENGTH_V1,
    TOPIC_LENGTH_V2,
)

if TYPE_CHECKING:
    from store_core.message import Message


class _HeaderKind(NamedTuple):
    header: struct.Struct
    flags: int


# By the lengths of both hosts, which determine the header and the flags.
_KINDS = {
    (born, store): _HeaderKind(
        HEADERS[born == IPV6_HOST_BYTES, store == IPV6_HOST_BYTES].struct,
        BORNHOST_V6_FLAG * (born == IPV6_HOST_BYTES)
        | STOREHOST_V6_FLAG * (store == IPV6_HOST_BYTES),
    )
    for born in (IPV4_HOST_BYTES, IPV6_HOST_BYTES)
    for store in (IPV4_HOST_BYTES, IPV6_HOST_BYTES)
}
_OTHER_FLAGS = ~(BORNHOST_V6_FLAG | STOREHOST_V6_FLAG)
_pack_properties_length = PROPERTIES_LENGTH.struct.pack


class TopicBytes(NamedTuple):
    """Parts of a record that depend on the topic: the version, and the topic with its length."""

    magic_code: int
    counted: bytes


def topic_bytes(topic: bytes) -> TopicBytes:
    """Return version 1 if the topic's length fits one signed byte, else version 2.

    RocketMQ counts characters instead of bytes, and if those fit but the bytes do not, its next
    start cuts the log at the record.
    """
    if len(topic) > MAX_TOPIC_BYTES_V1:
        return TopicBytes(MESSAGE_MAGIC_CODE_V2, TOPIC_LENGTH_V2.pack(value=len(topic)) + topic)
    return TopicBytes(MESSAGE_MAGIC_CODE, TOPIC_LENGTH_V1.pack(value=len(topic)) + topic)


@lru_cache(maxsize=4096)
def host_bytes(born: str | None, store: str | None, own: bytes) -> tuple[bytes, bytes]:
    """Return a message's born host and store host as stored; ``own`` if it has none.

    Raises
    ------
    ValueError
        A host is not ``ip:port`` or ``[ipv6]:port``.
    """
    return own if born is None else parse_host(born), own if store is None else parse_host(store)


def new_template(
    message: Message,
    topic: TopicBytes,
    properties_raw: bytes,
    hosts: tuple[bytes, bytes],
    now: int,
) -> bytearray:
    """Return the record of a message, with queue offset, physical offset and store time 0.

    Parameters
    ----------
    message
        If it has no birth time, that is ``now`` (ms). Its topic, properties and hosts are not used.
    properties_raw
        At most 32767 bytes, checked by the caller.
    hosts
        Born host and store host, 8 or 20 raw bytes; the IPv6 bits of the sys flag follow them.

    Raises
    ------
    struct.error
        A number does not fit its field.
    KeyError
        A host has another length.
    """
    born_host, store_host = hosts
    header, flags = _KINDS[len(born_host), len(store_host)]
    magic_code, counted = topic
    body = message.body
    body_bytes = len(body)
    return bytearray().join(
        (
            header.pack(
                header.size + body_bytes + len(counted) + 2 + len(properties_raw),
                magic_code,
                crc32(body) & 0x7FFFFFFF,
                message.queue_id,
                message.flag,
                0,
                0,
                message.sys_flag & _OTHER_FLAGS | flags,
                message.born_timestamp or now,
                born_host,
                0,
                store_host,
                message.reconsume_times,
                message.prepared_transaction_offset,
                body_bytes,
            ),
            body,
            counted,
            _pack_properties_length(len(properties_raw)),
            properties_raw,
        )
    )


def plain_template(
    message: Message,
    topic: TopicBytes,
    hosts: tuple[bytes, bytes],
    marks: tuple[bytes, ...],
    most_body: int,
    now: int,
) -> bytearray | None:
    """Return `new_template` of a message with its own properties, from the kernel.

    None without the kernel, and if the message is unusual: a value that cannot be stored or is of
    another type, a body of more than ``most_body`` bytes, an inner batch, many properties, or one
    of the ``marks`` among them. The caller then makes the record, and refuses what is wrong.
    """
    if native.kernel is None:
        return None
    raw = message.properties_raw
    magic_code, counted = topic
    born_host, store_host = hosts
    record: bytearray | None = native.kernel.encode_put(
        counted,
        magic_code,
        message.body,
        most_body,
        message.properties if raw is None else raw,
        marks,
        message.queue_id,
        message.flag,
        message.sys_flag,
        message.born_timestamp or now,
        born_host,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
    )
    return record
