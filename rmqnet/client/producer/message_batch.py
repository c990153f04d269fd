# SPDX-License-Identifier: Apache-2.0
"""Batches: many messages in one request.

Source: RocketMQ ``MessageBatch``, ``MessageDecoder.encodeMessages`` (release 5.3.3), except the
unique key of the whole batch, which is left out as in release 4.9.7.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rmqnet.client.producer.outgoing_message import (
    PROPERTY_WAIT_STORE_MSG_OK,
    OutgoingMessage,
    encode_properties,
    waits_for_store,
)
from rmqnet.client.producer.validation import check_message
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import RequestCode
from store_core.codec.java_string import java_integer
from store_core.layout import (
    INNER_ITEM,
    PROPERTIES_LENGTH,
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_KEY,
)
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqnet.client.producer.unique_keys import UniqueKeys
    from store_core.message import Message

_pack_head = INNER_ITEM.struct.pack
_pack_length = PROPERTIES_LENGTH.struct.pack
_FIXED_BYTES = INNER_ITEM.size + PROPERTIES_LENGTH.size
_DELAYS = frozenset(
    (
        PROPERTY_DELAY,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELIVER_MS,
    )
)
MAX_BATCH_MESSAGES = 32_767
"""Brokers count a batch's messages in a signed 16-bit number, which overflows above this."""


def outgoing_batch(
    messages: Sequence[Message], keys: UniqueKeys, max_message_size: int
) -> OutgoingMessage:
    """Return messages as one request; assign unique keys to those without one.

    Bodies are not compressed, because consumers would not inflate them.

    Parameters
    ----------
    max_message_size
        Most bytes of a body and of the whole encoded batch.

    Raises
    ------
    ClientError
        No broker would accept them as a batch; the text says why.
    """
    if not messages:
        raise ClientError("a batch has no messages")
    topic, wait = messages[0].topic, waits_for_store(messages[0].properties)
    if len(messages) > MAX_BATCH_MESSAGES:
        raise ClientError(
            f"a batch to topic {topic!r} has {len(messages)} messages, at most "
            f"{MAX_BATCH_MESSAGES} are allowed: send fewer per batch"
        )
    parts: list[bytes] = []
    for message in messages:
        _check_item(message, topic, wait)
        check_message(message, max_message_size)
        properties = message.properties
        if not properties.get(PROPERTY_UNIQ_KEY):
            properties[PROPERTY_UNIQ_KEY] = keys.next_key()
        if PROPERTY_WAIT_STORE_MSG_OK not in properties:
            properties = {PROPERTY_WAIT_STORE_MSG_OK: "true", **properties}
        text = encode_properties(topic, properties).encode(errors="replace")
        body = message.body
        size = _FIXED_BYTES + len(body) + len(text)
        parts += (_pack_head(size, 0, 0, message.flag, len(body)), body, _pack_length(len(text)))
        parts.append(text)
    return encoded_batch(
        topic,
        b"".join(parts),
        [message.properties[PROPERTY_UNIQ_KEY] for message in messages],
        max_message_size,
        wait=wait,
    )


def encoded_batch(
    topic: str,
    body: bytes,
    unique_keys: Sequence[str],
    max_message_size: int,
    *,
    wait: bool = True,
) -> OutgoingMessage:
    """Return already encoded messages as one request.

    Parameters
    ----------
    max_message_size
        Most bytes of the body.

    Raises
    ------
    ClientError
        The body is too long.
    """
    if len(body) > max_message_size:
        raise ClientError(
            f"a batch of {len(unique_keys)} messages to topic {topic!r} has {len(body)} bytes "
            f"encoded, more than max_message_size, {max_message_size}: send fewer per batch"
        )
    # Release 5 clients add a unique key for the whole batch. A release 5 broker overwrites the
    # messages' keys with it, so all get the same key, which differs from the returned ones.
    properties = {PROPERTY_WAIT_STORE_MSG_OK: "true" if wait else "false"}
    return OutgoingMessage(
        topic,
        body,
        encode_properties(topic, properties),
        ",".join(unique_keys),
        batch=True,
        request_code=RequestCode.SEND_BATCH_MESSAGE,
    )


def _is_delayed(properties: Mapping[str, str]) -> bool:
    """Return whether a broker would delay the message if sent alone; batches are not checked."""
    if _DELAYS.isdisjoint(properties):
        return False
    now_ms = time.time_ns() // 1_000_000
    return any(
        (java_integer(properties.get(name, ""), 64) or 0) > least
        for name, least in (
            (PROPERTY_DELAY, 0),
            (PROPERTY_TIMER_DELAY_MS, 0),
            (PROPERTY_TIMER_DELAY_SEC, 0),
            (PROPERTY_TIMER_DELIVER_MS, now_ms),
        )
    )


def _check_item(message: Message, topic: str, wait: bool) -> None:
    if message.topic != topic:
        raise ClientError(
            f"a batch has messages to topic {topic!r} and to {message.topic!r}: send one batch "
            "per topic"
        )
    if _is_delayed(message.properties):
        raise ClientError(f"a batch to topic {topic!r} has a delayed message: send it by itself")
    if topic.startswith(RETRY_PREFIX):
        raise ClientError(f"messages to retry topic {topic!r} cannot be sent in batches")
    if waits_for_store(message.properties) != wait:
        raise ClientError(
            f"a batch to topic {topic!r} has messages that wait for the store "
            f"({PROPERTY_WAIT_STORE_MSG_OK}) and others that do not"
        )
