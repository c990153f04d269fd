# SPDX-License-Identifier: Apache-2.0
"""Checks of messages before they are sent.

Source: RocketMQ ``Validators``, ``TopicValidator`` (release 5.3.3); brokers limit the length of
the properties.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rmqnet.client.names import check_group_name, check_topic_name
from rmqnet.errors import ClientError
from store_core.layout import (
    MAX_PROPERTIES_BYTES,
    PROPERTY_INNER_MULTI_DISPATCH,
    SCHEDULE_TOPIC,
)
from store_core.topics import DATABASE_OP_TOPIC, DISCARD_TOPIC, HALF_TOPICS, OP_TOPIC

if TYPE_CHECKING:
    from store_core.message import Message

MAX_MESSAGE_SIZE = 4 << 20
"""Most bytes of a body before compression (``maxMessageSize``)."""

_MIN_INT, _MAX_INT = -(1 << 31), (1 << 31) - 1

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
_NOT_ALLOWED_TOPICS = frozenset(
    (
        *(SCHEDULE_TOPIC, *HALF_TOPICS, OP_TOPIC, DATABASE_OP_TOPIC, DISCARD_TOPIC),
        *("SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
    )
)


@lru_cache(maxsize=1024)  # messages often go to the same topic
def check_topic(topic: str) -> None:
    """Reject invalid topic names and the broker's own topics.

    Raises
    ------
    ClientError
        The text says why.
    """
    check_topic_name(topic)
    if topic in _NOT_ALLOWED_TOPICS:
        raise ClientError(f"topic {topic!r} is the broker's own: clients must not send to it")


def check_group(group: str) -> None:
    """Reject invalid names of producer groups.

    Raises
    ------
    ClientError
        The text says why.
    """
    check_group_name(group)
    if group == DEFAULT_PRODUCER_GROUP:
        raise ClientError(
            f"the group must not be {group!r}: give your producers a name of their own"
        )


def check_body(topic: str, body: bytes, max_message_size: int) -> None:
    """Reject empty bodies and bodies of more than ``max_message_size`` bytes.

    Raises
    ------
    ClientError
        The text names the topic and both sizes.
    """
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise ClientError(
            f"a message to topic {topic!r} has a body of type {type(body).__name__}: expected "
            "bytes; encode text yourself"
        )
    if not body:
        raise ClientError(
            f"a message to topic {topic!r} has no body: RocketMQ requires at least one byte"
        )
    if len(body) > max_message_size:
        raise ClientError(
            f"a message to topic {topic!r} has a body of {len(body)} bytes, more than "
            f"max_message_size, {max_message_size}"
        )


def check_message(message: Message, max_message_size: int) -> None:
    """Reject a message that no broker accepts.

    Raises
    ------
    ClientError
        The text says why.
    """
    check_topic(message.topic)
    check_body(message.topic, message.body, max_message_size)
    if not isinstance(message.flag, int) or not _MIN_INT <= message.flag <= _MAX_INT:
        raise ClientError(
            f"a message to topic {message.topic!r} has flag {message.flag!r}: expected a number "
            "of 32 bits"
        )
    if "/" in message.properties.get(PROPERTY_INNER_MULTI_DISPATCH, ""):
        raise ClientError(
            f"a message to topic {message.topic!r} has a '/' in property "
            f"{PROPERTY_INNER_MULTI_DISPATCH}"
        )


def check_properties(topic: str, properties_bytes: int) -> None:
    """Reject properties that are too long for a record.

    Raises
    ------
    ClientError
        The text names the topic and both sizes.
    """
    if properties_bytes > MAX_PROPERTIES_BYTES:
        raise ClientError(
            f"a message to topic {topic!r} has properties of {properties_bytes} bytes, more than "
            f"{MAX_PROPERTIES_BYTES}"
        )
