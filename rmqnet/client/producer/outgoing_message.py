# SPDX-License-Identifier: Apache-2.0
"""Encoding of a message for sending, independent of the queue, so retries can reuse it.

Source: RocketMQ ``DefaultMQProducerImpl.sendKernelImpl`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqnet.client.producer.request_reply import PROPERTY_MESSAGE_TYPE, REPLY
from rmqnet.client.producer.validation import check_message, check_properties
from rmqnet.errors import ClientError
from rmqnet.remoting.codes import RequestCode
from store_core.codec.java_string import java_integer
from store_core.layout import (
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    TRANSACTION_PREPARED_TYPE,
)
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.client.producer.producer_config import Compression
    from rmqnet.client.producer.unique_keys import UniqueKeys
    from store_core.message import Message

PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_WAIT_STORE_MSG_OK = "WAIT"
_NAME_END = chr(NAME_VALUE_SEPARATOR)
_VALUE_END = chr(PROPERTY_SEPARATOR)


class OutgoingMessage(NamedTuple):
    """An encoded message or batch, ready to be sent."""

    topic: str
    body: bytes
    properties: str
    message_id: str
    flag: int = 0
    sys_flag: int = 0
    batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    request_code: RequestCode = RequestCode.SEND_MESSAGE_V2


def outgoing_message(
    message: Message,
    keys: UniqueKeys,
    compression: Compression,
    max_message_size: int,
    more_properties: Mapping[str, str] | None = None,
) -> OutgoingMessage:
    """Return an encoded message; assign a unique key if the message has none.

    Parameters
    ----------
    max_message_size
        Most bytes of the body before compression.

    Raises
    ------
    ClientError
        No broker would accept it; the text says why.
    """
    check_message(message, max_message_size)
    own = message.properties
    if not own.get(PROPERTY_UNIQ_KEY):
        own[PROPERTY_UNIQ_KEY] = keys.next_key()
    properties = {PROPERTY_WAIT_STORE_MSG_OK: "true", **own}
    if more_properties:
        properties.update(more_properties)
    # Copy the body: the caller may change a bytearray or memoryview before it is sent.
    body, sys_flag = compression.compressed(bytes(message.body))
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        sys_flag |= TRANSACTION_PREPARED_TYPE
    text = encode_properties(message.topic, properties)
    if properties.get(PROPERTY_MESSAGE_TYPE) == REPLY:
        return OutgoingMessage(
            message.topic,
            body,
            text,
            own[PROPERTY_UNIQ_KEY],
            message.flag,
            sys_flag,
            request_code=RequestCode.SEND_REPLY_MESSAGE_V2,
        )
    key = own[PROPERTY_UNIQ_KEY]
    if message.topic.startswith(RETRY_PREFIX):
        times = _number(properties, PROPERTY_RECONSUME_TIME)
        most = _number(properties, PROPERTY_MAX_RECONSUME_TIMES)
        return OutgoingMessage(
            message.topic,
            body,
            text,
            key,
            message.flag,
            sys_flag,
            reconsume_times=times or 0,
            max_reconsume_times=most,
        )
    return OutgoingMessage(message.topic, body, text, key, message.flag, sys_flag)


def _number(properties: Mapping[str, str], name: str) -> int | None:
    return java_integer(properties.get(name, ""), 32)


# Source: RocketMQ ``MessageDecoder.messageProperties2String``, ``Message``, ``MessageConst``
# (release 5.3.3).
def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Return whether the broker should wait for its configured safety before it answers."""
    value = properties.get(PROPERTY_WAIT_STORE_MSG_OK)
    return value is None or value.lower() == "true"


def encode_properties(topic: str, properties: Mapping[str, str]) -> str:
    """Return properties as one string.

    Parameters
    ----------
    properties
        Names without U+0001 and U+0002, and values without U+0002.

    Raises
    ------
    ClientError
        A name or value contains a separator, or the properties are too long for a record.
    """
    text = "".join([f"{name}{_NAME_END}{value}{_VALUE_END}" for name, value in properties.items()])
    if text.count(_VALUE_END) != len(properties) or text.count(_NAME_END) != len(properties):
        _check_separators(topic, properties)
    check_properties(topic, len(text) if text.isascii() else len(text.encode(errors="replace")))
    return text


def _check_separators(topic: str, properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if _NAME_END in name or _VALUE_END in name or _VALUE_END in value:
            raise ClientError(
                f"property {name!r} of a message to topic {topic!r} holds U+0001 or U+0002, which "
                "separate properties"
            )
