"""What a client tells brokers about its groups, again and again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

CLIENT_INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
"""Group that every client announces: its consumers send failed messages back by it."""


class ConsumeType(Enum):
    """Who asks: the application, or its client on its own (RocketMQ ``ConsumeType``)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"


class MessageModel(Enum):
    """Whether the members of a group share the messages, or each gets all."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(Enum):
    """Where a group begins that has read nothing yet."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True)
class SubscriptionData:
    """What a group wants of a topic (RocketMQ ``SubscriptionData``).

    Parameters
    ----------
    topic
        Which topic.
    sub_string
        ``*``, tags with ``||`` between, or an SQL expression.
    tags, codes
        The tags and their Java hash codes; none for ``*`` and SQL.
    sub_version
        Time of this subscription, ms: brokers take the newest.
    expression_type
        ``TAG`` or ``SQL92``.
    """

    topic: str
    sub_string: str = "*"
    tags: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = "TAG"

    def to_json(self) -> dict[str, Any]:
        """Return it as brokers read it."""
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
        """Return it as brokers read it."""
        return {
            "consumeFromWhere": self.consume_from_where.value,
            "consumeType": self.consume_type.value,
            "groupName": self.group_name,
            "messageModel": self.message_model.value,
            "subscriptionDataSet": [each.to_json() for each in self.subscriptions],
            "unitMode": self.unit_mode,
        }


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
