# SPDX-License-Identifier: Apache-2.0
"""The figures of a broker, under RocketMQ's names.

Source: RocketMQ ``BrokerMetricsConstant``, ``BrokerMetricsManager``,
``DefaultStoreMetricsConstant`` (release 5.3.3).
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from rmqnet.broker.state.consumer_offset_manager import NO_OFFSET
from rmqnet.broker.state.traffic import SIZE_LIMITS, is_retry_or_dlq
from store_core.message_store import MessageStore
from store_core.services.environment import disk_space
from store_core.topics import RETRY_PREFIX, SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client.core import Metric

    from rmqnet.broker.broker import Broker
    from rmqnet.broker.pools import Pools
    from rmqnet.broker.state.traffic import Count

_NODE = ("cluster", "node_type", "node_id")
_INCOMING = ("topic", "message_type", "is_system")
_OUTGOING = ("topic", "consumer_group", "is_system")
_LAG = ("consumer_group", "topic", "is_retry", "is_system")
_STORAGE = ("storage_type", "storage_medium")
_LOCAL_DISK = ("local", "disk")
_PROTOCOL = "remoting"
_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push"}
_Row = tuple[tuple[str, ...], float]


class BrokerCollector:
    """Collects the figures of a broker for a registry of prometheus-client, on each request.

    Parameters
    ----------
    pools
        The broker's pools of threads.
    """

    def __init__(self, broker: Broker, pools: Pools) -> None:
        self._broker, self._pools = broker, pools

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that a registry does not collect when it registers this."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Return all current figures."""
        yield from self._messages()
        yield from self._transactions()
        yield from self._clients()
        yield from self._groups()
        yield from self._storage()
        yield from self._broker_itself()

    def _messages(self) -> Iterator[Metric]:
        traffic = self._broker.traffic
        came = [
            ((*key, self._is_system(key.topic)), count)
            for key, count in sorted(traffic.incoming.items())
            if not is_retry_or_dlq(key.topic)
        ]
        left = [
            ((*key, self._is_system(key.topic, key.group)), count)
            for key, count in sorted(traffic.outgoing.items())
            if not is_retry_or_dlq(key.topic)
        ]
        for direction, labels, counts in (("in", _INCOMING, came), ("out", _OUTGOING, left)):
            yield self._counter(
                f"rocketmq_messages_{direction}",
                f"Messages {'received' if direction == 'in' else 'sent'}",
                labels,
                [(key, count.messages) for key, count in counts],
            )
            yield self._counter(
                f"rocketmq_throughput_{direction}",
                "Bytes of these messages, as stored",
                labels,
                [(key, count.size_bytes) for key, count in counts],
            )
        yield self._sizes(came)

    def _sizes(self, came: Sequence[tuple[tuple[str, ...], Count]]) -> Metric:
        family = HistogramMetricFamily(
            "rocketmq_message_size",
            "Bytes of a received message, as stored",
            labels=[*_NODE, *_INCOMING],
        )
        limits = [*map(float, SIZE_LIMITS), "+Inf"]
        for key, count in came:
            up_to = itertools.accumulate(count.sizes)
            buckets = [(str(limit), number) for limit, number in zip(limits, up_to)]
            family.add_metric([*self._node(), *key], buckets, count.size_bytes)
        return family

    def _transactions(self) -> Iterator[Metric]:
        traffic = self._broker.traffic
        dead = [
            ((key.group, key.topic, self._is_system(key.topic, key.group)), count)
            for key, count in sorted(traffic.dead.items())
        ]
        yield self._counter(
            "rocketmq_send_to_dlq_messages",
            "Messages that groups have given up as dead letters",
            ("consumer_group", "topic", "is_system"),
            dead,
        )
        yield self._counter(
            "rocketmq_commit_messages", "Transactions committed", (), [((), traffic.commits)]
        )
        yield self._counter(
            "rocketmq_rollback_messages", "Transactions rolled back", (), [((), traffic.rollbacks)]
        )

    def _clients(self) -> Iterator[Metric]:
        producers = Counter(
            (each.language.name.lower(), str(each.version), _PROTOCOL)
            for members in self._broker.producers.all().values()
            for each in members
        )
        yield self._gauge(
            "rocketmq_producer_connections",
            "Connected producers",
            ("language", "version", "protocol_type"),
            producers.items(),
        )
        consumers = Counter(
            (
                info.group,
                each.language.name.lower(),
                str(each.version),
                _MODES.get(info.consume_type.value, info.consume_type.value.lower()),
                _PROTOCOL,
                self._is_system("", info.group),
            )
            for info in self._broker.consumers.all()
            for each in list(info.members.values())
        )
        yield self._gauge(
            "rocketmq_consumer_connections",
            "Connected consumers",
            (
                *("consumer_group", "language", "version", "consume_mode"),
                *("protocol_type", "is_system"),
            ),
            consumers.items(),
        )

    def _groups(self) -> Iterator[Metric]:
        found = list(lags(self._broker))
        keys = [self._lag_labels(lag) for lag in found]
        for name, text, values in (
            ("lag_messages", "Messages that a group has not finished", [x.behind for x in found]),
            ("inflight_messages", "Those that it has received", [x.inflight for x in found]),
            (
                "ready_messages",
                "Those that it has not received",
                [x.behind - x.inflight for x in found],
            ),
            (
                "lag_latency",
                "Age in ms of the oldest message not finished",
                [x.latency_ms for x in found],
            ),
            (
                "queueing_latency",
                "Age in ms of the oldest message not received",
                [x.queueing_ms for x in found],
            ),
        ):
            yield self._gauge(f"rocketmq_consumer_{name}", text, _LAG, zip(keys, values))

    def _storage(self) -> Iterator[Metric]:
        broker, store = self._broker, self._broker.store
        figures: dict[str, tuple[str, int]] = {}
        space = disk_space(broker.topics.root)
        if space is not None:  # None if the store is gone
            figures["rocketmq_storage_size"] = ("Bytes used on the disk", space.used)
        if isinstance(store, MessageStore):
            figures["rocketmq_storage_flush_behind_bytes"] = (
                "Bytes of the log that are not forced to the disk",
                store.max_phy_offset - store.flushed_where,
            )
            figures["rocketmq_storage_dispatch_behind_bytes"] = (
                "Bytes of the log that are not in queues",
                store.dispatch_behind_bytes,
            )
        first = store.look_stored_message(max(store.min_phy_offset, 0))
        if first is not None:
            figures["rocketmq_storage_message_reserve_time"] = (
                "Age in ms of the oldest message",
                broker.clock() - first.store_timestamp,
            )
        for name, (text, value) in figures.items():
            yield self._gauge(name, text, _STORAGE, [(_LOCAL_DISK, value)])

    def _broker_itself(self) -> Iterator[Metric]:
        broker, pools = self._broker, self._pools
        waiting = {
            "send": pools.send,
            "pull": pools.pull,
            "query_message": pools.query,
            "client_manager": pools.client,
            "heartbeat": pools.heartbeat,
            "transaction": pools.transaction,
            "admin": pools.admin,
            "reply": pools.reply,
        }
        yield self._gauge(
            "rocketmq_processor_watermark",
            "Requests that wait for a thread",
            ("processor",),
            [((name,), pool.waiting) for name, pool in waiting.items()],
        )
        for name, text, value in (
            ("permission", "Bits: 2 write, 4 read", broker.config.broker_permission),
            ("connections", "Connected clients", broker.server.connections),
            ("held_pulls", "Pulls that wait for messages", broker.holds.waiting),
        ):
            yield self._gauge(f"rocketmq_broker_{name}", text, (), [((), value)])
        yield self._gauge("rocketmq_topic_number", "Topics", (), [((), len(broker.topics.all()))])
        yield self._gauge(
            "rocketmq_consumer_group_number", "Groups", (), [((), len(broker.groups.all()))]
        )

    def _lag_labels(self, lag: Lag) -> tuple[str, ...]:
        is_retry = _truth(lag.topic.startswith(RETRY_PREFIX))
        return lag.group, lag.topic, is_retry, self._is_system(lag.topic, lag.group)

    def _is_system(self, topic: str, group: str = "") -> str:
        is_own_group = group.lower().startswith(SYSTEM_GROUP_PREFIX.lower())
        return _truth(is_own_group or self._broker.topics.is_system_topic(topic))

    def _node(self) -> tuple[str, ...]:
        config = self._broker.config
        return config.broker_cluster_name, "broker", config.broker_name

    def _counter(self, name: str, text: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
        family = CounterMetricFamily(name, text, labels=[*_NODE, *labels])
        for key, value in rows:
            family.add_metric([*self._node(), *key], value)
        return family

    def _gauge(self, name: str, text: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=[*_NODE, *labels])
        for key, value in rows:
            family.add_metric([*self._node(), *key], value)
        return family


def _truth(value: object) -> str:
    return "true" if value else "false"


# Source: RocketMQ ``ConsumerLagCalculator`` (release 5.3.3), which covers only topics that current
# members subscribe to; here, topics of groups without members are covered as well.
class Lag(NamedTuple):
    """Lag of one group in one topic.

    Attributes
    ----------
    latency_ms, queueing_ms
        Ages of the oldest message that the group has not consumed, and of the oldest that it has
        not pulled; 0 if there is none.
    """

    group: str
    topic: str
    behind: int
    inflight: int
    latency_ms: int
    queueing_ms: int


def lags(broker: Broker) -> Iterator[Lag]:
    """Return the lag of each group in each topic that it reads."""
    for group in sorted(broker.groups.all()):
        noted = broker.offsets.topics_of(group)
        info = broker.consumers.group_info(group)
        if info is not None:
            if info.is_broadcasting:  # each member has its own offsets
                continue
            noted = {topic for topic in noted if not broker.consumers.is_unsubscribed(group, topic)}
            noted |= info.subscriptions.keys()
        for topic in sorted(noted):
            if broker.topics.select(topic) is not None:
                yield _lag(broker, group, topic)


def _lag(broker: Broker, group: str, topic: str) -> Lag:
    config = broker.topics.select(topic)
    behind = inflight = latency = queueing = 0
    for queue_id in range(0 if config is None else config.read_queue_nums):
        end = broker.store.get_max_offset_in_queue(topic, queue_id)
        first = broker.store.get_min_offset_in_queue(topic, queue_id)
        noted = broker.offsets.query(group, topic, queue_id)
        done = end if noted == NO_OFFSET else max(noted, first)
        got = min(max(broker.offsets.query_pull(group, topic, queue_id), done), end)
        behind += max(end - done, 0)
        inflight += max(got - done, 0)
        latency = max(latency, _age(broker, topic, queue_id, done))
        queueing = max(queueing, _age(broker, topic, queue_id, got))
    return Lag(group, topic, behind, inflight, latency, queueing)


def _age(broker: Broker, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return the ms since a message was stored; 0 if there is none."""
    stored = broker.store.get_message_store_timestamp(topic, queue_id, queue_offset)
    return max(broker.clock() - stored, 0) if stored > 0 else 0
