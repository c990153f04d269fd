"""The properties of a message on its way to a broker.

Source: RocketMQ ``MessageDecoder.messageProperties2String``, ``Message``, ``MessageConst``
(release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.client.producer.validation import check_properties
from rmqnet.errors import ClientError
from store_core.layout.message import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping

PROPERTY_WAIT_STORE_MSG_OK = "WAIT"

_NAME_END = chr(NAME_VALUE_SEPARATOR)
_VALUE_END = chr(PROPERTY_SEPARATOR)


def waits_for_store(properties: Mapping[str, str]) -> bool:
    """Say whether the broker is to answer only when the message is as safe as its settings ask."""
    return properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"


def properties_text(topic: str, properties: Mapping[str, str]) -> str:
    """Return properties as one string.

    Parameters
    ----------
    topic
        For the error.
    properties
        Names and values; a value may hold U+0001.

    Raises
    ------
    ClientError
        A name or value holds what separates them, or they are too long for a record.
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
