"""One consumer group of a broker: members and subscriptions.

Source: RocketMQ ``ConsumerGroupInfo`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqnet.client.heartbeat_data import ConsumeFromWhere, ConsumeType, MessageModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.broker.clients.client_channel_info import ClientChannelInfo
    from rmqnet.client.heartbeat_data import ConsumerData, SubscriptionData
    from rmqnet.remoting.server_connection import ServerConnection

logger = logging.getLogger(__name__)


class ConsumerGroupInfo:
    """A group that has members now; whoever changes it holds the manager's lock.

    Attributes
    ----------
    group
        Its name.
    members
        By connection.
    subscriptions
        What it wants, by topic: the newest version that a member told of each.
    consume_type, message_model, consume_from_where
        As the last heartbeat says.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.members: dict[ServerConnection, ClientChannelInfo] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.consume_type = ConsumeType.CONSUME_PASSIVELY
        self.message_model = MessageModel.CLUSTERING
        self.consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets all messages: nobody cares who comes and goes."""
        return self.message_model is MessageModel.BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        """The ids of the members."""
        return [client.client_id for client in list(self.members.values())]

    def find_subscription(self, topic: str) -> SubscriptionData | None:
        """Return what the group wants of a topic; None: nothing."""
        return self.subscriptions.get(topic)

    def find_client(self, client_id: str) -> ClientChannelInfo | None:
        """Return a member by its id."""
        members = list(self.members.values())
        return next((each for each in members if each.client_id == client_id), None)

    def update_member(self, client: ClientChannelInfo, data: ConsumerData) -> bool:
        """Note what a member says of the group; return whether it is a new member."""
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
        """Note what a member wants; return whether topics came or went."""
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
