# SPDX-License-Identifier: Apache-2.0
"""Base classes of the roles of a broker: master, slave, and broker that only reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Callable, ClassVar

from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
from rmqnet.broker.state.stats_items import SAMPLE_MS, BrokerStats, MessageTotals, StatsItems
from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
from rmqnet.broker.state.topic_config_manager import TopicConfigManager
from rmqnet.broker.store_host import store_host
from store_core.message_store import MessageStore
from store_core.services.service_thread import RepeatedService

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.broker import Broker
    from rmqnet.broker.broker_config import BrokerConfig
    from rmqnet.broker.processor.broker_processor import RequestRefusal
    from rmqnet.broker.registration import Registration
    from rmqnet.remoting.codes import RequestCode
    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.filter.consumer_filter_manager import ConsumerFilterManager
    from store_core.ha.follow_state import FollowState
    from store_core.recovery.recovery import LogRecovery
    from store_core.services.open_store import IsAwaited

    Dispatched = Callable[[RecordFrames], None]

_DAYS_MS = 60_000


class BrokerRole(ABC):
    """Opens the store, and runs its services while the broker answers clients.

    Called in this order: `open`, `serve`, `start`, `join`, `leave`, `shutdown`, `close`.

    Parameters
    ----------
    clock
        Returns ms since the epoch.

    Attributes
    ----------
    ha_address
        From `start` on, where slaves get the log, ``host:port``; empty if there are no slaves.
    """

    refusals: ClassVar[Mapping[RequestCode, RequestRefusal]] = {}
    """Answers to the requests that this role refuses."""
    is_read_only = False
    has_slaves = False

    def __init__(
        self,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        clock: Callable[[], int],
    ) -> None:
        self.config, self.store_config, self.clock = config, store_config, clock
        root, is_read_only = store_config.store_path_root_dir, self.is_read_only
        self.topics = TopicConfigManager(config, root, clock, is_read_only=is_read_only)
        self.groups = SubscriptionGroupManager(config, root, clock, is_read_only=is_read_only)
        self.offsets = self._make_offsets()
        self.store: Any = None
        self.ha_address = ""

    @property
    @abstractmethod
    def filters(self) -> ConsumerFilterManager:
        """SQL expressions of groups."""

    @abstractmethod
    def open(self, dispatched: Dispatched, is_awaited: IsAwaited) -> LogRecovery | None:
        """Open the store and load the state; return the result of recovery, None without one."""

    @abstractmethod
    def serve(self, broker: Broker) -> None:
        """Give the broker the services that its processors use; nothing runs yet."""

    @abstractmethod
    def start(self) -> None:
        """Start the store and its services."""

    def join(self, registration: Registration) -> None:  # noqa: B027 (most work alone)
        """Start to work with the other brokers of the set; this one is registered."""

    def leave(self) -> None:  # noqa: B027 (most work alone)
        """Stop working with the other brokers."""

    @abstractmethod
    def shutdown(self) -> None:
        """Stop what `start` started; the state may change until then."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    def _make_offsets(self) -> ConsumerOffsetManager:
        root = self.store_config.store_path_root_dir
        return ConsumerOffsetManager(self.config, root, self.clock, is_read_only=self.is_read_only)


def followed_status(address: str = "", state: FollowState | None = None) -> dict[str, Any]:
    """Return a slave's view of its master (``HAClientRuntimeInfo``); zeros for a master."""
    return {
        "activated": False,
        "lastReadTimestamp": 0 if state is None else state.last_read_ms,
        "lastWriteTimestamp": 0 if state is None else state.last_write_ms,
        "masterAddr": address,
        "masterFlushOffset": 0 if state is None else state.master_offset or 0,
        "maxOffset": 0 if state is None else state.max_offset,
        "transferredByteInSecond": 0 if state is None else state.bytes_in_second,
    }


class WrittenStoreRole(BrokerRole):
    """Opens a `MessageStore`, which locks the store."""

    store: MessageStore
    takes_timers = False
    """Whether to handle messages with a delivery time; for a slave, its master does so."""

    @property
    def filters(self) -> ConsumerFilterManager:
        """SQL expressions of groups, from the store's file."""
        return self.store.consumer_filters

    def open(self, dispatched: Dispatched, is_awaited: IsAwaited) -> LogRecovery:
        """Load the state and the store; see ``MessageStore.load``."""
        self._has_topics = False
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
            self._load_topics()
            self.groups.load_or_set_aside()
            self.offsets.load()  # without them groups would consume messages again
        except BaseException:
            store.shutdown()
            raise
        return recovery

    def serve(self, broker: Broker) -> None:
        """Set up the counting of messages."""
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
        """Start the store and the counting."""
        self.store.start()
        for service in self._counts:
            service.start()

    def shutdown(self) -> None:
        """Stop the counting."""
        for service in self._counts:
            service.shutdown()

    @abstractmethod
    def ha_status(self) -> dict[str, Any]:
        """Return the progress of slaves, or of this slave (``HARuntimeInfo``)."""

    def close(self) -> None:
        """Close the store cleanly."""
        self.store.shutdown()

    def _load_topics(self) -> None:
        """Load the topics once, after the store is locked, as that may rename their file."""
        if not self._has_topics:
            self.topics.load_or_set_aside()
            self._has_topics = True

    def _is_batch_topic(self, topic: str) -> bool:
        self._load_topics()  # recovery creates queues
        config = self.topics.select(topic)
        return config is not None and config.has_batch_queues
