# SPDX-License-Identifier: Apache-2.0
"""Contents of the heartbeats with which a client announces its groups to brokers."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from store_core.config.lenient_json import (
    json_field,
    json_flag,
    json_object,
    json_whole_number,
    parse_lenient_json,
)

if TYPE_CHECKING:
    from collections.abc import Collection

E = TypeVar("E", bound=Enum)

TAG = "TAG"
"""Type of tag expressions, and of expressions without a type, as in RocketMQ."""

CLIENT_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""Group that every client announces; its consumers use it to send failed messages back."""


class ConsumeType(Enum):
    """Whether the application or its client requests messages (RocketMQ ``ConsumeType``)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(Enum):
    """Whether the members of a group share the messages or each gets all of them."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a group that has no offset yet starts."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


# In the order of RocketMQ's enums: C++ clients send the number. Old clients have more start
# positions, all of which mean the first one.
_CONSUME_TYPES = (ConsumeType.CONSUME_ACTIVELY, ConsumeType.CONSUME_PASSIVELY)
_MESSAGE_MODELS = (MessageModel.BROADCASTING, MessageModel.CLUSTERING)
_PLACES = (
    *[ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET] * 4,
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
)


@dataclass(frozen=True)
class SubscriptionData:
    """A group's subscription to one topic (RocketMQ ``SubscriptionData``).

    Parameters
    ----------
    sub_version
        Time of this subscription, ms; brokers use the newest.
    expression_type
        ``TAG`` or ``SQL92``.
    """

    topic: str
    sub_string: str = "*"
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = TAG

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that brokers read."""
        return {
            "classFilterMode": False,
            "codeSet": list(self.codes),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": list(self.tags),
            "topic": self.topic,
        }


@dataclass(frozen=True)
class ConsumerData:
    """A consumer group as a member announces it (RocketMQ ``ConsumerData``)."""

    group_name: str
    subscriptions: tuple[SubscriptionData, ...]
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    unit_mode: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that brokers read."""
        return {
            "consumeFromWhere": self.consume_from_where.value,
            "consumeType": self.consume_type.value,
            "groupName": self.group_name,
            "messageModel": self.message_model.value,
            "subscriptionDataSet": [each.to_json() for each in self.subscriptions],
            "unitMode": self.unit_mode,
        }


@dataclass(frozen=True)
class HeartbeatData:
    """A client's announcement of its groups (RocketMQ ``HeartbeatData``).

    Parameters
    ----------
    fingerprint
        Identifies the contents in the second form of heartbeats; 0 in the first form.
    is_without_subscriptions
        True in the second form, which refers to the subscriptions that the broker knows.
    """

    client_id: str
    producer_groups: tuple[str, ...] = ()
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    is_without_subscriptions: bool = False


def parse_heartbeat(body: bytes) -> HeartbeatData:
    """Return the contents of a heartbeat's body; ValueError if it is not a heartbeat.

    Parsing is as lenient as fastjson's: clients in languages other than Java write numbers as
    text, enums as numbers, or capitals where RocketMQ has none.
    """
    data = json_object(parse_lenient_json(body.decode()), "heartbeat")
    return HeartbeatData(
        _text(data, "clientID"),
        tuple(_text(each, "groupName") for each in _objects(data, "producerDataSet")),
        tuple(_consumer(each) for each in _objects(data, "consumerDataSet")),
        _number(data, "heartbeatFingerprint", int),
        json_flag(json_field(data, "withoutSub")),
    )


def parse_subscription(data: dict[str, Any]) -> SubscriptionData:
    """Return a subscription sent by a client or broker; ValueError if it is not valid."""
    return SubscriptionData(
        str(json_field(data, "topic") or ""),
        str(json_field(data, "subString") or ""),
        tuple(sorted(str(tag) for tag in _list(data, "tagsSet"))),
        tuple(sorted(json_whole_number(code, "codeSet") for code in _list(data, "codeSet"))),
        _number(data, "subVersion", _now_ms),
        str(json_field(data, "expressionType") or TAG),
    )


def _consumer(data: dict[str, Any]) -> ConsumerData:
    return ConsumerData(
        _text(data, "groupName"),
        tuple(parse_subscription(each) for each in _objects(data, "subscriptionDataSet")),
        _choice(data, "consumeType", _CONSUME_TYPES, ConsumeType.CONSUME_PASSIVELY),
        _choice(data, "messageModel", _MESSAGE_MODELS, MessageModel.CLUSTERING),
        _choice(data, "consumeFromWhere", _PLACES, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        json_flag(json_field(data, "unitMode")),
    )


def _choice(data: dict[str, Any], name: str, declared: tuple[E, ...], default: E) -> E:
    """Return the enum member with the given name or index from 0; otherwise the default."""
    value = json_field(data, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return declared[value] if 0 <= value < len(declared) else default
    return next((each for each in declared if each.value == value), default)


def _number(data: dict[str, Any], name: str, missing: Callable[[], int]) -> int:
    value = json_field(data, name)
    return missing() if value is None else json_whole_number(value, name)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _text(data: dict[str, Any], name: str) -> str:
    value = json_field(data, name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: a text was expected, not {value!r:.80}")
    return value


def _objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [json_object(each, name) for each in _list(data, name)]


def _list(data: dict[str, Any], name: str) -> list[Any]:
    values = json_field(data, name) or []
    if not isinstance(values, list):
        raise ValueError(f"{name}: a list was expected, not {values!r:.80}")  # noqa: TRY004
    return values


def encode_heartbeat(
    client_id: str, producer_groups: Collection[str], consumers: Collection[ConsumerData]
) -> bytes:
    """Return the body of a heartbeat (RocketMQ ``HeartbeatData``, first form)."""
    data = {
        "clientID": client_id,
        "consumerDataSet": [each.to_json() for each in consumers],
        "heartbeatFingerprint": 0,
        "producerDataSet": [{"groupName": group} for group in sorted(producer_groups)],
        "withoutSub": False,
    }
    return json.dumps(data, separators=(",", ":")).encode()
