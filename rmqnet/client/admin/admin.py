# SPDX-License-Identifier: Apache-2.0
"""Administration of a running cluster: queries and changes.

Source: RocketMQ ``DefaultMQAdminExt`` (releases 5.3.3 and 4.9.7).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, TypeVar, Union

from rmqnet.client.admin.cluster_brokers import ClusterBrokers
from rmqnet.client.admin.offset_reset import OffsetReset
from rmqnet.client.admin_results import (
    ConsumerConnections,
    GroupConfig,
    join_consume_stats,
    join_consumer_connections,
)
from rmqnet.client.broker_admin_client import LATEST_TIMESTAMP
from rmqnet.client.client_config import ClientConfig
from rmqnet.client.client_instance import ClientInstance
from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.names import check_group_name, check_topic_name
from rmqnet.client.received_messages import messages_from_body
from rmqnet.errors import BrokerError, ClientError, TopicNotFoundError
from rmqnet.remoting.headers import QueryMessageRequestHeader
from store_core.codec.message_id import format_host, parse_message_id
from store_core.config.config_files import TopicConfig
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping

    from rmqnet.client.admin_results import Connection, ConsumeStats, QueueStats
    from rmqnet.client.topic_route import ClusterInfo, TopicRoute
    from store_core.message import Message

NO_END = (1 << 63) - 1
"""Latest possible store time, ms."""
_MAX_REPEATS = 32
Client = Union[ClientInstance, ClientConfig, str]
T = TypeVar("T")
EARLIEST, LATEST = 0, LATEST_TIMESTAMP
"""Timestamps that mean the first message and the end of each queue."""
_ORDER_TOPICS = "ORDER_TOPIC_CONFIG"


class MessageQueries:
    """Finds messages by key or id; runs in a client's event loop."""

    def __init__(self, instance: ClientInstance, brokers: ClusterBrokers) -> None:
        self._instance = instance
        self._brokers = brokers

    async def by_key(self, header: QueryMessageRequestHeader) -> list[Message]:
        """Return messages with a key, oldest first."""
        return [
            message
            for message in await self._query(header)
            if message.topic == header.topic and header.key in (message.keys or [])
        ]

    async def by_unique_key(self, topic: str, unique_key: str) -> list[Message]:
        """Return messages with an id assigned by a client, oldest first."""
        header = QueryMessageRequestHeader(
            topic, unique_key, _MAX_REPEATS, 0, NO_END, unique_key_query=True
        )
        return [each for each in await self._query(header) if each.unique_key == unique_key]

    async def by_id(self, topic: str, message_id: str) -> Message:
        """Return a message by its broker or client id; ClientError if there is none."""
        place = await self._place_of(message_id)
        if place is not None:
            address, commit_log_offset = place
            body = await self._instance.broker.view_message(address, topic, commit_log_offset)
            return messages_from_body(body, address, f"message {message_id}")[0]
        messages = await self.by_unique_key(topic, message_id)
        if not messages:
            raise ClientError(
                f"topic {topic} has no message with id {message_id!r}: no client assigned it, and "
                "it names no broker of this cluster"
            )
        return messages[0]

    async def _query(self, header: QueryMessageRequestHeader) -> list[Message]:
        """Return all index matches of each broker, including messages with an equal hash."""

        async def on_broker(address: str) -> list[Message]:
            result = await self._instance.broker.query_message(address, header)
            return messages_from_body(result.body, address, f"key {header.key}")

        parts = await self._brokers.on_route(header.topic, on_broker)
        messages = [message for part in parts for message in part]
        return sorted(messages, key=lambda each: (each.store_timestamp, each.commit_log_offset))

    async def _place_of(self, message_id: str) -> tuple[str, int] | None:
        """Return the broker and offset in an id; None if it names no broker of this cluster.

        Ids assigned by clients have the same form and begin with the client's address.
        """
        try:
            host, commit_log_offset = parse_message_id(message_id)
        except ValueError:
            return None
        address = format_host(host)
        info = await self._instance.name_server.cluster_info()
        known = {each for addresses in info.brokers.values() for each in addresses.values()}
        return (address, commit_log_offset) if address in known else None


class Admin(ShuttingDown):
    """Inspects and changes a running cluster; each method waits for its answer.

    ``with Admin("host:9876") as admin: admin.topics()``. Any number of threads may use one. A
    missing topic raises `TopicNotFoundError`, an unknown broker name `ClientError`; if a broker
    refuses a request, `BrokerError` gives its reason.

    Parameters
    ----------
    client
        Name server addresses (``host:port;host:port``), a `ClientConfig`, or a `ClientInstance`,
        which the caller owns and `shutdown` leaves open.
    """

    def __init__(self, client: Client) -> None:
        self._owns_instance = not isinstance(client, ClientInstance)
        self._instance = client if isinstance(client, ClientInstance) else ClientInstance(client)
        self._brokers = ClusterBrokers(self._instance)
        self._offsets = OffsetReset(self._instance, self._brokers)
        self._messages = MessageQueries(self._instance, self._brokers)

    def start(self) -> Admin:
        """Start the client without connecting yet. A second call does nothing."""
        self._instance.start()
        return self

    def shutdown(self) -> None:
        """Close all connections, unless the caller owns them. May be called more than once."""
        if self._owns_instance:
            self._instance.shutdown()

    # The cluster.

    def cluster(self) -> ClusterInfo:
        """Return the brokers and clusters that a name server knows."""
        return self._call(self._instance.name_server.cluster_info())

    def broker_stats(self, broker_name: str) -> dict[str, str]:
        """Return the statistics of a broker's master: versions, rates, times, disk."""
        return self._on_master(broker_name, self._instance.broker_admin.runtime_info)

    def broker_config(self, broker_name: str) -> dict[str, str]:
        """Return all settings of a broker's master."""
        return self._on_master(broker_name, self._instance.broker_admin.broker_config)

    def update_broker_config(self, broker_name: str, settings: Mapping[str, str]) -> None:
        """Change settings of a broker's running master and in its configuration file."""
        broker = self._instance.broker_admin
        self._on_master(broker_name, lambda at: broker.update_broker_config(at, settings))

    # Topics.

    def topics(self) -> list[str]:
        """Return the names of all topics, including RocketMQ's own, sorted."""
        return self._call(self._instance.name_server.topics())

    def topic_configs(self, broker_name: str) -> dict[str, TopicConfig]:
        """Return the topics of a broker with their settings, by name."""
        return self._on_master(broker_name, self._instance.broker_admin.topic_configs)

    def route(self, topic: str) -> TopicRoute:
        """Ask a name server for a topic's route and return it."""
        return self._call(self._instance.refresh_route(topic))

    def create_topic(
        self,
        topic: str,
        queue_nums: int = 8,
        *,
        brokers: Collection[str] | None = None,
        attributes: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """Create a topic that does not exist.

        Parameters
        ----------
        queue_nums
            Queues on each broker.
        brokers
            Broker names; all brokers if None.
        attributes
            Attributes of release 5, such as ``{"message.type": "FIFO"}``.
        **settings
            More fields of `TopicConfig`: ``perm``, ``read_queue_nums``, ``order`` (ignored by 4.x
            brokers), …

        Raises
        ------
        ClientError
            The topic already exists; use `update_topic`.
        """
        check_topic_name(topic)
        config = TopicConfig(topic, queue_nums, queue_nums, attributes=dict(attributes or {}))
        self._call(self._create_topic(replace(config, **settings), brokers))

    def update_topic(self, config: TopicConfig, brokers: Collection[str] | None = None) -> None:
        """Change a topic's settings, or create it, on the given brokers or (if None) all.

        Its attributes become those of ``config``.
        """
        self._call(self._update_topic(config, brokers))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its messages from all brokers, and its route from name servers."""
        self._call(self._delete_topic(topic))

    def topic_stats(self, topic: str) -> dict[MessageQueue, QueueStats]:
        """Return first offset, end and last store time of a topic's queues, sorted by queue."""
        return self._call(self._topic_stats(topic))

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the consumer groups that read a topic or have read it, sorted."""
        return sorted(self._call(self._groups_of_topic(topic)))

    # Offsets of queues.

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's first message."""
        broker = self._instance.broker
        return self._on_queue(queue, lambda at: broker.min_offset(at, queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the end of a queue, which is the offset of its next message."""
        broker = self._instance.broker
        return self._on_queue(queue, lambda at: broker.max_offset(at, queue))

    def search_offset(self, queue: MessageQueue, timestamp: int) -> int:
        """Return the first offset stored at or after a time, ms; the end if there is none.

        4.x brokers return the nearest offset, and the last message's instead of the end.
        """
        broker = self._instance.broker
        return self._on_queue(queue, lambda at: broker.search_offset(at, queue, timestamp))

    def earliest_store_time(self, queue: MessageQueue) -> int:
        """Return the store time (ms) of a queue's first message; -1 if the queue is empty."""
        broker = self._instance.broker
        return self._on_queue(queue, lambda at: broker.earliest_store_time(at, queue))

    # Consumer groups.

    def groups(self) -> list[str]:
        """Return the names of all consumer groups, including RocketMQ's own, sorted."""
        return sorted(self._call(self._groups()))

    def group_configs(self, broker_name: str) -> dict[str, GroupConfig]:
        """Return the consumer groups of a broker with their settings, by name."""
        return self._on_master(broker_name, self._instance.broker_admin.group_configs)

    def create_group(
        self, group: str, *, brokers: Collection[str] | None = None, **settings: Any
    ) -> None:
        """Create a consumer group that does not exist.

        Parameters
        ----------
        brokers
            Broker names; all brokers if None.
        **settings
            More fields of `GroupConfig`: ``retry_max_times``, ``consume_message_orderly``, …

        Raises
        ------
        ClientError
            The group already exists; use `update_group`.
        """
        check_group_name(group)
        self._call(self._create_group(GroupConfig(group, **settings), brokers))

    def update_group(self, config: GroupConfig, brokers: Collection[str] | None = None) -> None:
        """Change a group's settings, or create it, on the given brokers or (if None) all.

        Its attributes become those of ``config``.
        """
        broker = self._instance.broker_admin
        self._call(self._brokers.on_masters(lambda at: broker.update_group(at, config), brokers))

    def delete_group(self, group: str, *, clean_offsets: bool = False) -> None:
        """Delete a consumer group from all brokers and, with ``clean_offsets``, its offsets."""
        broker = self._instance.broker_admin
        self._call(
            self._brokers.on_masters(
                lambda at: broker.delete_group(at, group, clean_offsets=clean_offsets)
            )
        )

    def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """Return a group's progress and lag, for one topic or (if None) for all."""
        return self._call(self._consume_stats(group, topic))

    def consumer_connections(self, group: str) -> ConsumerConnections:
        """Return the connected members of a consumer group; possibly none."""
        broker = self._instance.broker_admin
        parts = self._brokers.on_masters(lambda at: broker.consumer_connections(at, group))
        return join_consumer_connections(self._call(parts))

    def producer_connections(self, group: str) -> tuple[Connection, ...]:
        """Return the connected producers of a group, without repeats; possibly none."""
        broker = self._instance.broker_admin
        parts = self._call(
            self._brokers.on_masters(lambda at: broker.producer_connections(at, group))
        )
        clients = {each.client_id: each for part in parts for each in part}
        return tuple(sorted(clients.values()))

    def consumer_running_info(self, group: str, client_id: str) -> dict[str, Any]:
        """Return the state that a connected consumer reports (``ConsumerRunningInfo``).

        Raises
        ------
        BrokerError
            The consumer is not connected to any broker.
        """
        return self._call(self._running_info(group, client_id))

    def reset_offsets(
        self, group: str, topic: str, timestamp: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset a group's offsets in a topic and return the new ones by queue.

        Members may be connected or not. Connected members use the new offsets after some seconds:
        with 5.x brokers at their next pull (up to 15 s), with 4.x brokers after 10 s. With 4.x
        brokers, a broadcasting group has no offsets to reset unless members are connected.

        Parameters
        ----------
        timestamp
            Continue at the first messages stored at or after this time, ms; `EARLIEST` means the
            first messages, `LATEST` the end.
        force
            If False, move offsets backwards only; 5.x brokers always move both ways.
        """
        return self._call(self._offsets.reset(group, topic, timestamp, force=force))

    def reset_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset in one queue.

        Connected members use it only with 5.x brokers; with 4.x brokers the group must be
        offline.

        Raises
        ------
        ClientError
            Members are connected, and the broker does not reset offsets itself.
        """
        self._call(self._offsets.reset_queue(group, queue, offset))

    # Messages.

    def query_message(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 64,
        begin_timestamp: int = 0,
        end_timestamp: int = NO_END,
    ) -> list[Message]:
        """Return messages of a topic with a key (a word of property ``KEYS``), oldest first.

        Parameters
        ----------
        max_num
            Most messages from each broker.
        begin_timestamp, end_timestamp
            Range of store times, ms; both inclusive.
        """
        header = QueryMessageRequestHeader(topic, key, max_num, begin_timestamp, end_timestamp)
        return self._call(self._messages.by_key(header))

    def query_message_by_unique_key(self, topic: str, unique_key: str) -> list[Message]:
        """Return the messages with a client's id (property ``UNIQ_KEY``), oldest first.

        Usually there is one; there are several if its producer sent it again or a consumer sent it
        back.
        """
        return self._call(self._messages.by_unique_key(topic, unique_key))

    def view_message(self, topic: str, message_id: str) -> Message:
        """Return a message by its broker or client id.

        Raises
        ------
        ClientError
            No client assigned this id, and it names no broker of this cluster.
        BrokerError
            The broker named in the id has no message at its offset.
        """
        return self._call(self._messages.by_id(topic, message_id))

    # In the event loop.

    async def _create_topic(self, config: TopicConfig, brokers: Collection[str] | None) -> None:
        topic = config.topic_name
        try:
            route = await self._instance.refresh_route(topic)
        except TopicNotFoundError:
            await self._update_topic(config, brokers)
            return
        names = ", ".join(sorted(route.brokers))
        raise ClientError(f"topic {topic!r} exists already on {names}: update_topic changes it")

    async def _update_topic(self, config: TopicConfig, brokers: Collection[str] | None) -> None:
        broker = self._instance.broker_admin
        await self._brokers.on_masters(lambda at: broker.update_topic(at, config), brokers)

    async def _delete_topic(self, topic: str) -> None:
        broker, name_server = self._instance.broker_admin, self._instance.name_server
        await self._brokers.on_masters(lambda at: broker.delete_topic(at, topic))
        for cluster in (await name_server.cluster_info()).clusters:
            await name_server.delete_topic(topic, cluster)
        await name_server.delete_kv_config(_ORDER_TOPICS, topic)

    async def _topic_stats(self, topic: str) -> dict[MessageQueue, QueueStats]:
        broker = self._instance.broker_admin
        parts = await self._brokers.on_route(topic, lambda at: broker.topic_stats(at, topic))
        return dict(sorted(pair for part in parts for pair in part.items()))

    async def _groups_of_topic(self, topic: str) -> set[str]:
        broker = self._instance.broker_admin
        parts = await self._brokers.on_route(topic, lambda at: broker.groups_of_topic(at, topic))
        return set().union(*parts)

    async def _groups(self) -> set[str]:
        return set().union(
            *await self._brokers.on_masters(self._instance.broker_admin.group_configs)
        )

    async def _create_group(self, config: GroupConfig, brokers: Collection[str] | None) -> None:
        broker = self._instance.broker_admin
        if config.group_name in await self._groups():
            raise ClientError(
                f"consumer group {config.group_name!r} exists already: update_group changes it"
            )
        await self._brokers.on_masters(lambda at: broker.update_group(at, config), brokers)

    async def _consume_stats(self, group: str, topic: str | None) -> ConsumeStats:
        broker = self._instance.broker_admin
        parts = await self._brokers.on_masters(lambda at: broker.consume_stats(at, group, topic))
        return join_consume_stats(parts)

    async def _running_info(self, group: str, client_id: str) -> dict[str, Any]:
        broker = self._instance.broker_admin
        masters = await self._brokers.masters()
        for number, address in enumerate(masters.values(), 1):
            try:
                return await broker.consumer_running_info(address, group, client_id)
            except BrokerError:  # members connect only to the brokers of their topics
                if number == len(masters):
                    raise
        raise ClientError("no broker has a master")

    def _on_master(self, broker_name: str, ask: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        (answer,) = self._call(self._brokers.on_masters(ask, [broker_name]))
        return answer

    def _on_queue(self, queue: MessageQueue, ask: Callable[[str], Coroutine[Any, Any, T]]) -> T:
        async def on_broker() -> T:
            await self._instance.route(queue.topic)
            return await ask(self._instance.broker_address(queue.broker_name, slave_ok=True))

        return self._call(on_broker())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._instance.call(work)
