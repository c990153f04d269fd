# SPDX-License-Identifier: Apache-2.0
"""Periodic heartbeats that announce this client's groups to brokers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from rmqnet.client.heartbeat_data import CLIENT_INNER_PRODUCER, encode_heartbeat
from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import BrokerError, ClientError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqnet.client.broker_client import BrokerClient
    from rmqnet.client.heartbeat_data import ConsumerData
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.outage_log import OutageLog
    from rmqnet.client.route_table import RouteTable
    from rmqnet.remoting.headers import CheckTransactionStateRequestHeader
    from store_core.message import Message

logger = logging.getLogger(__name__)


class Heartbeats:
    """The groups of a client and the brokers that know them. Used only in the event loop."""

    def __init__(
        self, client_id: str, broker: BrokerClient, routes: RouteTable, outages: OutageLog
    ) -> None:
        self._client_id = client_id
        self._broker = broker
        self._routes = routes
        self._outages = outages
        self.producers: dict[str, GroupProducer] = {}
        self.consumers: dict[str, GroupConsumer] = {}
        self.broker_versions: dict[str, int] = {}
        """MQVersion number of each broker that knows this client, by address."""

    @property
    def used_topics(self) -> set[str]:
        """The topics that the groups subscribe or publish to."""
        topics = {
            subscription.topic
            for consumer in self.consumers.values()
            for subscription in consumer.heartbeat_data().subscriptions
        }
        return topics.union(*(each.publish_topics() for each in self.producers.values()))

    def add_producer(self, group: str, producer: GroupProducer) -> None:
        """Announce a producer from the next heartbeat on."""
        self._check_new(group, self.producers, "producer")
        self.producers[group] = producer

    def add_consumer(self, group: str, consumer: GroupConsumer) -> None:
        """Announce a consumer from the next heartbeat on."""
        self._check_new(group, self.consumers, "consumer")
        self.consumers[group] = consumer

    async def send(self) -> None:
        """Send a heartbeat to all brokers in use; failures are logged."""
        await self._send_to(self._addresses())

    async def send_to_new(self) -> bool:
        """Send one to brokers without one on this connection; True if all now know this client."""
        new = self._addresses() - self.broker_versions.keys()
        await self._send_to(new)
        return new <= self.broker_versions.keys()

    def forget(self, address: str) -> bool:
        """Note that a broker's connection is closed; True if the broker knew this client."""
        return self.broker_versions.pop(address, None) is not None

    async def unregister(self, **group: str) -> None:
        """Leave a group on all brokers, slaves included; failures are logged."""
        await self._leave_brokers([group])

    async def leave(self) -> None:
        """Leave all groups on all brokers."""
        groups = [{"consumer_group": group} for group in self.consumers]
        groups += [{"producer_group": group} for group in self.producers]
        if self.broker_versions:
            groups.append({"producer_group": CLIENT_INNER_PRODUCER})
        self.producers.clear()
        self.consumers.clear()
        await self._leave_brokers(groups)

    @staticmethod
    def _check_new(group: str, members: Mapping[str, object], kind: str) -> None:
        if group in members:
            raise ClientError(
                f"this client already has a {kind} of group {group!r}; give the other one its own "
                "instance name"
            )

    def _addresses(self) -> set[str]:
        if not self.producers and not self.consumers:
            return set()
        return {
            address
            for broker in self._routes.brokers.values()
            for broker_id, address in broker.items()
            if self.consumers or broker_id == MASTER_ID
        }

    async def _send_to(self, addresses: set[str]) -> None:
        if addresses:
            consumers = [consumer.heartbeat_data() for consumer in self.consumers.values()]
            groups = {*self.producers, CLIENT_INNER_PRODUCER}
            body = encode_heartbeat(self._client_id, groups, consumers)
            await asyncio.gather(*(self._send_one(address, body) for address in addresses))

    async def _send_one(self, address: str, body: bytes) -> None:
        try:
            self.broker_versions[address] = await self._broker.heartbeat(address, body)
        except (BrokerError, RemotingError) as err:
            self.broker_versions.pop(address, None)
            self._outages.report(logger, err, "no heartbeat reached %s: %s", address, err)

    async def _leave_brokers(self, groups: list[dict[str, str]]) -> None:
        addresses = {
            address for broker in self._routes.brokers.values() for address in broker.values()
        }
        await asyncio.gather(*(self._leave_broker(address, groups) for address in addresses))

    async def _leave_broker(self, address: str, groups: list[dict[str, str]]) -> None:
        try:
            for group in groups:
                await self._broker.unregister(address, self._client_id, **group)
        except (BrokerError, RemotingError) as err:  # the broker will notice the closed connection
            text = "cannot tell %s that this client has left groups %s: %s"
            self._outages.report(logger, err, text, address, groups, err)


class GroupProducer(Protocol):
    """The part of a producer that its client uses."""

    def publish_topics(self) -> Collection[str]:
        """Return the topics it sends to; called in the event loop, so it must not block."""

    def check_transaction(
        self, message: Message, header: CheckTransactionStateRequestHeader, broker_address: str
    ) -> None:
        """Check a half message's transaction and answer the broker; called in a pool thread."""

    def on_reply(self, message: Message) -> bool:
        """Accept the reply to a request (property ``CORRELATION_ID``); False if it is not its own.

        Called in the event loop, so it must not block.
        """


class GroupConsumer(Protocol):
    """The part of a consumer that its client uses."""

    def heartbeat_data(self) -> ConsumerData:
        """Return the data for heartbeats; called in the event loop, so it must not block."""

    def on_consumer_ids_changed(self) -> None:
        """Rebalance soon, as members joined or left. Called in the event loop."""

    def on_connection_closed(self, address: str) -> None:
        """Discard state that the broker drops on disconnect. Called in the event loop."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at offsets set by an administrator; called in a pool thread."""

    def consumer_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """Return the consumer's offset in each queue of a topic; called in a pool thread."""

    def running_info(self) -> dict[str, Any]:
        """Return RocketMQ's ``ConsumerRunningInfo`` as JSON values; called in a pool thread.

        Keys may be queues, see ``queue_json``.
        """

    def consume_directly(self, message: Message, broker_name: str) -> dict[str, Any]:
        """Pass one message to the listener now; called in a pool thread.

        Returns RocketMQ's ``ConsumeMessageDirectlyResult`` as JSON values.
        """
