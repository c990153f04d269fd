"""A broker that has its store open: a master or a slave."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from rmqnet.broker.broker_stats import BrokerStats, MessageTotals
from rmqnet.broker.metrics.stats_items import SAMPLE_MS, StatsItems
from rmqnet.broker.roles.broker_role import BrokerRole
from rmqnet.broker.store_host import store_host
from store_core.message_store import MessageStore
from store_core.services.service_thread import RepeatedService

if TYPE_CHECKING:
    from rmqnet.broker.broker import Broker
    from rmqnet.broker.roles.broker_role import Dispatched
    from store_core.filter.consumer_filter_manager import ConsumerFilterManager
    from store_core.recovery.recovery import LogRecovery
    from store_core.services.open_store import IsAwaited

_DAYS_MS = 60_000


class WrittenStoreRole(BrokerRole):
    """Opens a `MessageStore`, which takes the lock."""

    store: MessageStore
    takes_timers = False
    """Messages may name the time of their delivery; else whoever put them has seen to that."""

    @property
    def filters(self) -> ConsumerFilterManager:
        """SQL expressions of groups, as the store's file has them."""
        return self.store.consumer_filters

    def open(self, dispatched: Dispatched, is_awaited: IsAwaited) -> LogRecovery:
        """Load the state and the store; see ``MessageStore.load``."""
        self.topics.load_or_set_aside()  # recovery makes queues, which asks for topics
        self.store = store = MessageStore(
            self.store_config,
            store_host=store_host(self.config.broker_ip1, self.config.listen_port),
            clock=self.clock,
            dispatchers=[dispatched],
            is_batch_topic=self._is_batch_topic,
            handle_timer_message=self.takes_timers,
            is_awaited=is_awaited,
        )
        recovery = store.load()
        try:
            self.groups.load_or_set_aside()
            self.offsets.load()  # without them groups would get again what they have consumed
        except BaseException:
            store.shutdown()
            raise
        return recovery

    def serve(self, broker: Broker) -> None:
        """Have messages counted."""
        counted = self.store.services.stats
        broker.stats = BrokerStats(
            lambda: MessageTotals(counted.puts, counted.transferred), self.clock
        )
        broker.stats_items = StatsItems(broker.traffic, self.config.broker_cluster_name, self.clock)
        self._counts = (
            RepeatedService("broker-stats", broker.stats.run_once, _DAYS_MS, is_late=True),
            RepeatedService("stats-items", broker.stats_items.run_once, SAMPLE_MS, is_late=True),
        )
        broker.ha_status = self.ha_status

    def start(self) -> None:
        """Let messages be put."""
        self.store.start()
        for service in self._counts:
            service.start()

    def stop(self) -> None:
        """Count no more."""
        for service in self._counts:
            service.shutdown()

    @abstractmethod
    def ha_status(self) -> dict[str, Any]:
        """Return how far slaves are, or this one is (``HARuntimeInfo``)."""

    def close(self) -> None:
        """Close the store cleanly."""
        self.store.shutdown()

    def _is_batch_topic(self, topic: str) -> bool:
        config = self.topics.select(topic)
        return config is not None and config.has_batch_queues
