# SPDX-License-Identifier: Apache-2.0
"""Information that brokers return about topics, groups and clients."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rmqnet.client.heartbeat_data import SubscriptionData, parse_subscription
from rmqnet.client.queue_json import queue_table
from store_core.config.config_checks import camel_case
from store_core.config.config_files import (
    SubscriptionGroupConfig,
    config_json,
    parse_group_configs,
)
from store_core.config.lenient_json import json_object, json_whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqnet.client.message_queue import MessageQueue


@dataclass(frozen=True)
class QueueStats:
    """One queue of a topic (RocketMQ ``TopicOffset``).

    Parameters
    ----------
    min_offset, max_offset
        First offset and end (exclusive).
    last_update_timestamp
        Store time of its last message, ms; 0 if it is empty.
    """

    min_offset: int
    max_offset: int
    last_update_timestamp: int


@dataclass(frozen=True)
class QueueConsumption:
    """A group's progress in one queue (RocketMQ ``OffsetWrapper``).

    Parameters
    ----------
    broker_offset
        The end of the queue.
    consumer_offset
        The group's committed offset; 0 if the broker has none.
    pull_offset
        End of the messages delivered to the group; `consumer_offset` with 4.x brokers.
    last_timestamp
        Store time of the message before `consumer_offset`, ms; 0 if unknown.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_timestamp: int

    @property
    def lag(self) -> int:
        """Number of messages that the group has not consumed."""
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True)
class ConsumeStats:
    """A group's progress in all queues, retries included (RocketMQ ``ConsumeStats``)."""

    queues: Mapping[MessageQueue, QueueConsumption]
    consume_tps: float
    """Messages per second, as counted by the brokers."""

    @property
    def lag(self) -> int:
        """Number of messages that the group has not consumed in all queues."""
        return sum(each.lag for each in self.queues.values())


@dataclass(frozen=True, order=True)
class Connection:
    """One client that is connected to a broker."""

    client_id: str
    client_addr: str
    language: str
    version: int
    """MQVersion number; 479 is 5.3.3."""


@dataclass(frozen=True)
class ConsumerConnections:
    """The members of a consumer group that are connected now.

    Parameters
    ----------
    connections
        The clients, without repeats; empty if the group is not online.
    consume_type, message_model, consume_from_where
        The values the members announced; empty if the group is not online.
    subscriptions
        The members' subscriptions by topic.
    """

    connections: tuple[Connection, ...] = ()
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    subscriptions: Mapping[str, SubscriptionData] = field(default_factory=dict)

    @property
    def is_online(self) -> bool:
        """Whether at least one member is connected."""
        return bool(self.connections)


@dataclass(frozen=True)
class GroupConfig(SubscriptionGroupConfig):
    """All settings of a consumer group; change them with `dataclasses.replace` and send them."""

    more: Mapping[str, Any] = field(default_factory=dict)
    """Settings without a field here (``groupRetryPolicy``, …), by RocketMQ's names; these win."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that brokers read, without attributes."""
        known = config_json(self)
        del known["more"], known["attributes"]
        return {**known, **self.more}


_KNOWN = {camel_case(each.name) for each in fields(SubscriptionGroupConfig)}


def parse_groups(data: dict[str, Any]) -> dict[str, GroupConfig]:
    """Return groups by name from a ``SubscriptionGroupWrapper``."""
    table = json_object(data.get("subscriptionGroupTable"), "subscriptionGroupTable")
    groups = {}
    for name, known in sorted(parse_group_configs(data).items()):
        more = {key: value for key, value in table[name].items() if key not in _KNOWN}
        groups[name] = GroupConfig(**vars(known), more=more)
    return groups


def parse_topic_stats(data: dict[str, Any]) -> dict[MessageQueue, QueueStats]:
    """Return a topic's queues from a ``TopicStatsTable``."""
    names = ("minOffset", "maxOffset", "lastUpdateTimestamp")
    return {
        queue: QueueStats(*_numbers(offsets, names))
        for queue, offsets in queue_table(data, "offsetTable").items()
    }


def parse_consume_stats(data: dict[str, Any]) -> ConsumeStats:
    """Return a group's offsets from a ``ConsumeStats``."""
    queues = {}
    for queue, offsets in queue_table(data, "offsetTable").items():
        broker, consumer, last = _numbers(
            offsets, ("brokerOffset", "consumerOffset", "lastTimestamp")
        )
        pull = json_whole_number(offsets.get("pullOffset", consumer), "pullOffset")
        queues[queue] = QueueConsumption(broker, consumer, pull, last)
    return ConsumeStats(queues, float(data.get("consumeTps", 0.0)))


def join_consume_stats(parts: Iterable[ConsumeStats]) -> ConsumeStats:
    """Return the statistics of several brokers as one."""
    queues: dict[MessageQueue, QueueConsumption] = {}
    consume_tps = 0.0
    for part in parts:
        queues.update(part.queues)
        consume_tps += part.consume_tps
    return ConsumeStats(dict(sorted(queues.items())), consume_tps)


def parse_connections(data: dict[str, Any]) -> tuple[Connection, ...]:
    """Return the clients in the field ``connectionSet``, sorted."""
    return tuple(
        sorted(
            Connection(
                str(each.get("clientId", "")),
                str(each.get("clientAddr", "")),
                str(each.get("language", "")),
                json_whole_number(each.get("version", 0), "version"),
            )
            for each in (
                json_object(item, "connectionSet") for item in data.get("connectionSet") or []
            )
        )
    )


def parse_consumer_connections(data: dict[str, Any]) -> ConsumerConnections:
    """Return the members of a group from a ``ConsumerConnection``."""
    table = json_object(data.get("subscriptionTable"), "subscriptionTable")
    return ConsumerConnections(
        parse_connections(data),
        str(data.get("consumeType", "")),
        str(data.get("messageModel", "")),
        str(data.get("consumeFromWhere", "")),
        {
            str(topic): parse_subscription(json_object(each, "subscriptionTable"))
            for topic, each in sorted(table.items())
        },
    )


def join_consumer_connections(parts: Iterable[ConsumerConnections]) -> ConsumerConnections:
    """Return the connections of several brokers as one, without repeated clients."""
    clients: dict[str, Connection] = {}
    subscriptions: dict[str, SubscriptionData] = {}
    words = ("", "", "")
    for part in parts:
        clients.update((each.client_id, each) for each in part.connections)
        subscriptions.update(part.subscriptions)
        if part.is_online:
            words = (part.consume_type, part.message_model, part.consume_from_where)
    connections = tuple(sorted(clients.values()))
    return ConsumerConnections(connections, *words, dict(sorted(subscriptions.items())))


def _numbers(data: Any, names: tuple[str, ...]) -> list[int]:
    numbers = json_object(data, "offsetTable")
    return [json_whole_number(numbers.get(name, 0), name) for name in names]
