# SPDX-License-Identifier: Apache-2.0
"""The parts of a broker, as its request processors see them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.broker.state.traffic import Traffic
from store_core.message_store import MessageStore

if TYPE_CHECKING:
    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.clients.broker_to_client import BrokerToClient
    from rmqnet.broker.clients.consumer_manager import ConsumerManager
    from rmqnet.broker.clients.producer_manager import ProducerManager
    from rmqnet.broker.clients.rebalance_lock_manager import RebalanceLockManager
    from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
    from rmqnet.broker.state.stats_items import BrokerStats, StatsItems
    from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
    from rmqnet.broker.state.topic_config_manager import TopicConfigManager
    from rmqnet.remoting.remoting_server import RemotingServer
    from store_core.filter.consumer_filter_manager import ConsumerFilterManager


logger = logging.getLogger(__name__)


@dataclass
class Broker:
    """The parts of a broker, for its request processors; it does nothing itself.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    transactions, delays, timers
        Services of the store; None if they do not run.
    min_broker_id
        The smallest broker id of the set that name servers know; 0 for a slave with a master.
    stats, stats_items
        Messages of yesterday and today, and of the last hours by topic; None if not counted.
    """

    config: BrokerConfig
    store: Any
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    server: RemotingServer
    clock: Callable[[], int]
    producers: ProducerManager
    consumers: ConsumerManager
    locks: RebalanceLockManager
    to_client: BrokerToClient
    filters: ConsumerFilterManager
    holds: Any = None
    transactions: Any = None
    delays: Any = None
    timers: Any = None
    stats: BrokerStats | None = None
    stats_items: StatsItems | None = None
    ha_status: Callable[[], dict[str, Any]] = dict
    min_broker_id: int = 0
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def dispatched_store(self) -> Any:
        """The store, after its queues contain every message acknowledged so far.

        Otherwise a client could get a queue's end that does not include its own message.
        RocketMQ's queues are at most a millisecond late.
        """
        if isinstance(self.store, MessageStore) and not self.store.wait_for_queues():
            logger.warning("the queues lack messages that were stored more than a second ago")
        return self.store
