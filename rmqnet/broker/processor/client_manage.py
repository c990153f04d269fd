# SPDX-License-Identifier: Apache-2.0
"""Clients that join, leave or fall silent: 34, 35, 46.

Source: RocketMQ ``ClientManageProcessor`` (release 5.3.3).
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
from rmqnet.broker.processor.bodies import body_of
from rmqnet.broker.processor.broker_processor import BrokerProcessor
from rmqnet.client.heartbeat_data import TAG, ConsumeType, parse_heartbeat, parse_subscription
from rmqnet.errors import RemotingFormatError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.config_ranges import check_count
from rmqnet.remoting.header_fields import decode_header
from rmqnet.remoting.headers import HeartbeatResponseHeader, UnregisterClientRequestHeader
from rmqnet.remoting.remoting_command import RemotingCommand
from rmqnet.remoting.request_processor import answers
from store_core.config.config_files import TopicConfig
from store_core.config.consumer_filter_file import SQL92
from store_core.config.lenient_json import json_object
from store_core.errors import FilterSyntaxError
from store_core.filter.sql_parser import parse_sql
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.client.heartbeat_data import ConsumerData, HeartbeatData
    from rmqnet.remoting.server_connection import ServerConnection
    from rmqnet.remoting.worker_pool import WorkerPool
    from store_core.config.config_files import SubscriptionGroupConfig

_UNIT_SUBSCRIPTION_FLAG = 2  # of a topic (``TopicSysFlag``)
_SQL_DIALECT = 5
HOUSEKEEPING_SECONDS = 10.0


class ClientManageProcessor(BrokerProcessor):
    """Adds clients to groups, and removes them."""

    pool = "heartbeat"

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._lock = threading.Lock()
        self._fingerprints: dict[str, int] = {}

    @answers(RequestCode.HEART_BEAT, with_peer=True)
    def heartbeat(self, connection: ServerConnection, request: RemotingCommand) -> RemotingCommand:
        """Record the groups of a client (34)."""
        try:
            data = parse_heartbeat(request.body)
        except ValueError as err:
            raise RemotingFormatError(f"the heartbeat cannot be decoded: {err}") from err
        client = ClientChannelInfo(
            connection, data.client_id, request.language, request.version, self._broker.clock()
        )
        self._check_counts(data)
        is_changed = self._register_consumers(client, data)
        for group in data.producer_groups:
            self._broker.producers.register(group, client)
        if not connection.is_open:  # it ended meanwhile, and reports that only once
            forget_client(self._broker, connection)
        # To heartbeats of the first form, a broker of 5.3.3 always reports a change.
        header = HeartbeatResponseHeader(
            is_support_heart_beat_v2=True, is_sub_change=is_changed or not data.fingerprint
        )
        return request.success(header)

    @answers(RequestCode.UNREGISTER_CLIENT, with_peer=True)
    def unregister_client(
        self, connection: ServerConnection, request: RemotingCommand
    ) -> RemotingCommand:
        """Remove a client from groups (35)."""
        header = decode_header(UnregisterClientRequestHeader, request.ext_fields)
        broker = self._broker
        if header.producer_group is not None:
            broker.producers.unregister(header.producer_group, connection)
        group = header.consumer_group
        if group is not None:
            config = broker.groups.find(group)
            is_notifying = config is None or config.notify_consumer_ids_changed_enable
            # Locks granted while the client stopped, which RocketMQ lets expire. They are released
            # before the other members are notified, which lock the queues immediately.
            broker.locks.unlock(group, None, header.client_id)
            broker.consumers.unregister(group, connection, is_notifying=is_notifying)
        return request.success()

    @answers(RequestCode.CHECK_CLIENT_CONFIG)
    def check_client_config(self, request: RemotingCommand) -> RemotingCommand:
        """Check whether a subscription's expression is valid (46)."""
        with body_of(request) as data:
            found = json_object(data.get("subscriptionData"), "subscriptionData")
            subscription = parse_subscription(found)
        if subscription.expression_type == TAG:
            return request.success()
        if not self._broker.config.enable_property_filter:
            kind = subscription.expression_type
            remark = f"The broker does not support consumer to filter message by {kind:.80}"
            return request.refusal(ResponseCode.SYSTEM_ERROR, remark)
        if subscription.expression_type != SQL92:
            remark = f"there is no filter of type {subscription.expression_type:.80}"
            return request.refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        try:
            parse_sql(subscription.sub_string, _SQL_DIALECT)
        except FilterSyntaxError as err:
            return request.refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(err))
        return request.success()

    def _check_counts(self, data: HeartbeatData) -> None:
        config = self._broker.config
        most_groups, most_topics = config.max_groups_per_request, config.max_topics_per_request
        check_count("groups", len(data.consumers), most_groups)
        check_count("groups of producers", len(data.producer_groups), most_groups)
        for consumer in data.consumers:
            count = len(consumer.subscriptions)
            check_count(f"topics of group {consumer.group_name:.120}", count, most_topics)

    def _register_consumers(self, client: ClientChannelInfo, data: HeartbeatData) -> bool:
        """Record the groups of a client; return whether the fingerprint of one has changed.

        Groups, topics and filters are each saved once, as a save waits for the disk.
        """
        broker, is_changed = self._broker, False
        consumers = [each for each in data.consumers if self._is_taken(each)]
        for consumer in consumers:
            is_changed |= self._has_other_fingerprint(consumer.group_name, data.fingerprint)
        configs = broker.groups.find_all(each.group_name for each in consumers)
        known = [
            (each, configs[each.group_name]) for each in consumers if each.group_name in configs
        ]
        broker.topics.create_all([self._retry_topic(*each) for each in known])
        with broker.filters.saved_together():
            for consumer, config in known:
                broker.consumers.register(
                    client,
                    consumer,
                    is_notifying=config.notify_consumer_ids_changed_enable,
                    is_without_subscriptions=bool(data.fingerprint)
                    and data.is_without_subscriptions,
                )
        return is_changed

    def _is_taken(self, consumer: ConsumerData) -> bool:
        is_active = consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
        return not (is_active and self._broker.config.reject_pull_consumer_enable)

    def _retry_topic(self, consumer: ConsumerData, config: SubscriptionGroupConfig) -> TopicConfig:
        is_order = self._broker.topics.is_order_topic
        return TopicConfig(
            RETRY_PREFIX + consumer.group_name,
            config.retry_queue_nums,
            config.retry_queue_nums,
            topic_sys_flag=_UNIT_SUBSCRIPTION_FLAG if consumer.unit_mode else 0,
            order=any(is_order(each.topic) for each in consumer.subscriptions),
        )

    def _has_other_fingerprint(self, group: str, fingerprint: int) -> bool:
        with self._lock:
            known = self._fingerprints.get(group)
            self._fingerprints[group] = fingerprint
        return known is not None and known != fingerprint


# Source: RocketMQ ``ClientHousekeepingService`` (release 5.3.3), which runs every 10 s.
class ClientHousekeeping:
    """Removes clients that are gone from the tables of producers and consumers."""

    def __init__(self, broker: Broker, pool: WorkerPool) -> None:
        self._broker = broker
        self._pool = pool
        broker.server.on_close(self._on_close)

    def run_once(self) -> bool:
        """Remove clients that were silent for too long; return whether there were any.

        Called every `HOUSEKEEPING_SECONDS`.
        """
        broker = self._broker
        now = broker.clock()
        before = now - broker.config.channel_expired_timeout
        silent = [*broker.consumers.expire(before), *broker.producers.expire(before)]
        for connection in dict.fromkeys(silent):
            seconds = broker.config.channel_expired_timeout // 1000
            broker.server.disconnect(connection, f"no heartbeat for {seconds} seconds")
        broker.consumers.expire_compensations(now - broker.config.subscription_expired_timeout)
        return bool(silent)

    def _on_close(self, connection: ServerConnection) -> None:
        forget = functools.partial(forget_client, self._broker, connection)
        if not self._pool.submit(forget):
            forget()


def forget_client(broker: Broker, connection: ServerConnection) -> None:
    """Remove a client whose connection ended from all groups."""
    broker.producers.remove(connection)
    broker.consumers.remove(connection)
