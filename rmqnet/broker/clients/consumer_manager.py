# SPDX-License-Identifier: Apache-2.0
"""The consumers that a broker knows.

Source: RocketMQ ``ConsumerManager`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from rmqnet.client.heartbeat_data import ConsumeFromWhere, ConsumeType, MessageModel
from store_core.config.consumer_filter_file import SQL92
from store_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.clients.broker_to_client import BrokerToClient
    from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
    from rmqnet.client.heartbeat_data import ConsumerData, SubscriptionData
    from rmqnet.remoting.server_connection import ServerConnection
    from store_core.filter.consumer_filter_manager import ConsumerFilterManager

logger = logging.getLogger(__name__)


class ConsumerListener(Protocol):
    """Called about changes of groups, in the thread that makes them; must not block."""

    def on_members_changed(self, group: str, members: list[ServerConnection]) -> None:
        """Handle a change of a group's members or topics; ``members`` are the current ones."""

    def on_subscriptions(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Handle the subscriptions in a member's heartbeat, which may be unchanged."""

    def on_group_gone(self, group: str) -> None:
        """Handle that a group has lost its last member."""


class ConsumerManager:
    """Consumer groups that have members; any thread may call.

    Parameters
    ----------
    listener
        Called about changes; optional.
    """

    def __init__(self, listener: ConsumerListener | None = None) -> None:
        self._listener = listener
        self._lock = threading.RLock()
        self._groups: dict[str, ConsumerGroupInfo] = {}
        self._compensations: dict[str, dict[str, SubscriptionData]] = {}

    def register(
        self,
        client: ClientChannelInfo,
        data: ConsumerData,
        *,
        is_notifying: bool = True,
        is_without_subscriptions: bool = False,
    ) -> bool:
        """Record a member's heartbeat; return whether members or topics changed."""
        with self._lock:
            info = self._groups.setdefault(data.group_name, ConsumerGroupInfo(data.group_name))
            changed = info.update_member(client, data)
            if not is_without_subscriptions:
                changed |= info.update_subscriptions(data.subscriptions)
            members = list(info.members)
        listener = self._listener
        if listener is not None:
            if changed and is_notifying and not info.is_broadcasting:
                listener.on_members_changed(info.group, members)
            if not is_without_subscriptions:
                listener.on_subscriptions(info.group, data.subscriptions)
        return changed

    def unregister(
        self, group: str, connection: ServerConnection, *, is_notifying: bool = True
    ) -> None:
        """Remove a member from one group."""
        with self._lock:
            info = self._groups.get(group)
            if info is None or not self._leave(info, connection):
                return
            members = list(info.members)
        self._tell(info, members, is_notifying=is_notifying)

    def remove(self, connection: ServerConnection) -> None:
        """Remove a client from all groups."""
        for group in self.groups_of(connection):
            self.unregister(group, connection)

    def expire(self, before_ms: int) -> list[ServerConnection]:
        """Remove members whose last heartbeat is older; return their connections."""
        with self._lock:
            silent = [
                (info.group, connection)
                for info in self._groups.values()
                for connection, client in info.members.items()
                if client.last_update_timestamp < before_ms
            ]
        for group, connection in silent:
            self.unregister(group, connection)
        return list(dict.fromkeys(connection for _, connection in silent))

    def group_info(self, group: str) -> ConsumerGroupInfo | None:
        """Return a group; None if it has no members."""
        return self._groups.get(group)

    def all(self) -> list[ConsumerGroupInfo]:
        """Return all groups that have members."""
        with self._lock:
            return list(self._groups.values())

    def groups_of(self, connection: ServerConnection) -> list[str]:
        """Return the groups of a client."""
        with self._lock:
            return [info.group for info in self._groups.values() if connection in info.members]

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the groups that subscribe to a topic."""
        return {info.group for info in self.all() if topic in info.subscriptions}

    def find_client(self, group: str, client_id: str) -> ClientChannelInfo | None:
        """Return a member of a group by its id; None if it is not online."""
        info = self._groups.get(group)
        return None if info is None else info.find_client(client_id)

    def find_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return a group's subscription to a topic, from heartbeats or else from pulls."""
        info = self._groups.get(group)
        found = None if info is None else info.subscriptions.get(topic)
        return found or self._compensations.get(group, {}).get(topic)

    def is_unsubscribed(self, group: str, topic: str) -> bool:
        """Return whether a group subscribes to other topics, but not to this one."""
        info = self._groups.get(group)
        has_some = info is not None and bool(info.subscriptions)
        return has_some and self.find_subscription(group, topic) is None

    def compensate(self, group: str, subscription: SubscriptionData) -> None:
        """Record the subscription of a pull whose client sends no heartbeats for its group."""
        with self._lock:
            self._compensations.setdefault(group, {})[subscription.topic] = subscription

    def expire_compensations(self, before_ms: int) -> None:
        """Remove subscriptions of pulls whose version is older."""
        with self._lock:
            for group, topics in list(self._compensations.items()):
                kept = {
                    topic: each for topic, each in topics.items() if each.sub_version >= before_ms
                }
                if kept:
                    self._compensations[group] = kept
                else:
                    del self._compensations[group]

    def _leave(self, info: ConsumerGroupInfo, connection: ServerConnection) -> bool:
        client = info.members.pop(connection, None)
        if client is None:
            return False
        logger.info("%s (%s) leaves group %s", client.client_id, connection.address, info.group)
        if not info.members:
            del self._groups[info.group]
        return True

    def _tell(
        self, info: ConsumerGroupInfo, members: list[ServerConnection], *, is_notifying: bool
    ) -> None:
        listener = self._listener
        if listener is None:
            return
        if not members:
            listener.on_group_gone(info.group)
        elif is_notifying and not info.is_broadcasting:
            listener.on_members_changed(info.group, members)


# Source: RocketMQ ``ConsumerGroupInfo`` (release 5.3.3).
class ConsumerGroupInfo:
    """A group that has members; changes require the manager's lock."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.members: dict[ServerConnection, ClientChannelInfo] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages, so that other members do not matter to it."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        """The ids of the members."""
        return [client.client_id for client in list(self.members.values())]

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        """Return the group's subscription to a topic; None if there is none."""
        return self.subscriptions.get(topic)

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """Return a member by its id."""
        members = list(self.members.values())
        return next((each for each in members if each.client_id == client_id), None)

    def update_member(self, client: ClientChannelInfo, data: ConsumerData) -> bool:
        """Record a member's heartbeat; return whether the member is new."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        known = self.members.get(client.connection)
        if known is not None and known.client_id == client.client_id:
            known.last_update_timestamp = client.last_update_timestamp
            return False
        self.members[client.connection] = client
        logger.info(
            "%s (%s) joins group %s", client.client_id, client.connection.address, self.group
        )
        return known is None

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Record a member's subscriptions; return whether the topics changed."""
        wanted = {each.topic: each for each in subscriptions}
        known = self.subscriptions
        updated = {
            topic: new if (old := known.get(topic)) is None or _is_newer(new, old) else old
            for topic, new in wanted.items()
        }
        self.subscriptions = updated
        return updated.keys() != known.keys()


def _is_newer(new: SubscriptionData, old: SubscriptionData) -> bool:
    return new.sub_version > old.sub_version


# Source: RocketMQ ``DefaultConsumerIdsChangeListener`` (release 5.3.3).
class ConsumerChanges:
    """The listener of a broker's ``ConsumerManager``."""

    def __init__(
        self,
        config: BrokerConfig,
        to_client: BrokerToClient,
        filters: ConsumerFilterManager,
    ) -> None:
        self._config = config
        self._to_client = to_client
        self._filters = filters

    def on_members_changed(self, group: str, members: list[ServerConnection]) -> None:
        """Notify the members of a group, so that they rebalance its queues."""
        if self._config.notify_consumer_ids_changed_enable:
            for connection in members:
                self._to_client.notify_consumer_ids_changed(connection, group)

    def on_subscriptions(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Register the SQL expressions of a group, and unregister those of topics it left."""
        wanted = {each.topic: each for each in subscriptions}
        try:
            for topic, each in wanted.items():
                if each.expression_type == SQL92:
                    self._filters.register(
                        topic, group, each.sub_string, client_version=each.sub_version
                    )
            self._filters.unregister(group, kept_topics=wanted)
        except StoreError:
            logger.exception("cannot save the filters of group %s", group)

    def on_group_gone(self, group: str) -> None:
        """Unregister the filters of a group, which no member needs."""
        try:
            self._filters.unregister(group)
        except StoreError:
            logger.exception("cannot save the filters of group %s", group)
