"""What follows from changes of consumer groups: members are told, filters are kept.

Source: RocketMQ ``DefaultConsumerIdsChangeListener`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store_core.config.consumer_filter_file import SQL92
from store_core.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.clients.broker_to_client import BrokerToClient
    from rmqnet.client.heartbeat_data import SubscriptionData
    from rmqnet.remoting.server_connection import ServerConnection
    from store_core.filter.consumer_filter_manager import ConsumerFilterManager

logger = logging.getLogger(__name__)


class ConsumerChanges:
    """The listener of a broker's ``ConsumerManager``.

    Parameters
    ----------
    config
        Of the broker.
    to_client
        Tells members.
    filters
        SQL expressions.
    """

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
        """Tell the members of a group to share out its queues anew."""
        if self._config.notify_consumer_ids_changed_enable:
            for connection in members:
                self._to_client.notify_consumer_ids_changed(connection, group)

    def on_subscriptions(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Keep the SQL expressions of a group; those of topics that it left have nobody."""
        wanted = {each.topic: each for each in subscriptions}
        try:
            for topic, each in wanted.items():
                if each.expression_type == SQL92:
                    self._filters.register(
                        topic, group, each.sub_string, client_version=each.sub_version
                    )
            self._filters.unregister(group, kept_topics=wanted)
        except StoreError:
            logger.exception("the filters of group %s are not kept", group)

    def on_group_gone(self, group: str) -> None:
        """Note that the filters of a group have nobody who needs them."""
        try:
            self._filters.unregister(group)
        except StoreError:
            logger.exception("the filters of group %s are not kept", group)
