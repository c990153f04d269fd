# SPDX-License-Identifier: Apache-2.0
"""The topics of a broker: ``config/topics.json``.

Source: RocketMQ ``TopicConfigManager``, ``TopicValidator`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Optional

from rmqnet.broker.state.attributes import TOPIC_ATTRIBUTES, changed_attributes
from rmqnet.broker.state.config_manager import ConfigManager, without
from store_core.config.config_files import (
    TopicConfig,
    config_json,
    entries_of,
    parse_topic_configs,
)
from store_core.layout import SCHEDULE_TOPIC
from store_core.topics import (
    DATABASE_OP_TOPIC,
    DISCARD_TOPIC,
    HALF_TOPIC,
    HALF_TOPICS,
    OP_TOPIC,
    SYSTEM_PREFIX,
    TIMER_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqnet.broker.broker_config import BrokerConfig

logger = logging.getLogger(__name__)

PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4
DEFAULT_TOPIC = "TBW102"
"""The topic whose settings are inherited by topics that a send creates."""
SELF_TEST_TOPIC, BENCHMARK_TOPIC = "SELF_TEST_TOPIC", "BenchmarkTest"
OFFSET_MOVED_TOPIC = "OFFSET_MOVED_EVENT"
_TABLE = "topicConfigTable"
_SCHEDULE_QUEUES = 18
_BENCHMARK_QUEUES = 1024
_NO_SENDS = (
    SCHEDULE_TOPIC,
    *HALF_TOPICS,
    OP_TOPIC,
    DATABASE_OP_TOPIC,
    DISCARD_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
)
_ALWAYS_SYSTEM = (
    *_NO_SENDS,
    DEFAULT_TOPIC,
    BENCHMARK_TOPIC,
    "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC",
)

TopicListener = Callable[[Optional[TopicConfig]], object]
"""Called with a topic that is new or changed; with None if others may be changed or deleted."""


class TopicConfigManager(ConfigManager):
    """The topics of a broker; changes are saved immediately.

    If saving fails, a requested change raises the error; for topics that clients need it is only
    logged. The change takes effect in memory, and listeners are called, in either case.

    A broker's own topics exist from the start; `load` gives them the settings of the file.
    """

    FILE_NAME = "topics.json"

    def _begin(self) -> None:
        self._topics = {each.topic_name: each for each in _own_topics(self._config)}
        self._system = {*_ALWAYS_SYSTEM, *self._topics}
        self._unknown: dict[str, dict[str, Any]] = {}
        self._listeners: list[TopicListener] = []

    def on_change(self, listener: TopicListener) -> None:
        """Register a function to call after each change, in the thread that made it."""
        self._listeners.append(listener)

    def select(self, topic: str) -> TopicConfig | None:
        """Return the settings of a topic; None if it does not exist."""
        return self._topics.get(topic)

    def all(self) -> dict[str, TopicConfig]:
        """Return all topics by name; a copy."""
        with self._lock:
            return dict(self._topics)

    def is_order_topic(self, topic: str) -> bool:
        """Return whether a topic exists and is an order topic."""
        config = self._topics.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        """Return whether a topic is the broker's own; clients cannot create or delete it."""
        return topic in self._system or topic.startswith(SYSTEM_PREFIX)

    def system_topics(self) -> list[str]:
        """Return the names of the broker's own topics, even of those that do not exist."""
        return sorted(self._system)

    def is_sending_allowed(self, topic: str) -> bool:
        """Return whether clients may send to a topic of this name."""
        return topic not in _NO_SENDS

    def create_in_send_message(
        self,
        topic: str,
        default_topic: str,
        remote_address: str,
        client_queue_nums: int,
        sys_flag: int = 0,
    ) -> TopicConfig | None:
        """Return a topic that a client sends to; if it is missing, create it like a default topic.

        Parameters
        ----------
        client_queue_nums
            Queues that the client requests; at most the default topic's write queues are made.
        sys_flag
            Bits: 1 unit, 2 unit subscriptions.

        Returns
        -------
        config
            None if it does not exist and may not be created.
        """
        with self._lock:
            known = self._topics.get(topic)
            if known is not None:
                return known
            made = self._inherited(topic, default_topic, client_queue_nums, sys_flag)
            if made is None:
                logger.warning(
                    "%s sends to topic %s, which does not exist: %s gives no settings for it",
                    remote_address,
                    topic,
                    default_topic,
                )
                return None
            self._put(made)
        self._persist_or_log()
        self._tell(made)
        return made

    def create_in_send_message_back(
        self,
        topic: str,
        queue_nums: int,
        perm: int = PERM_READ | PERM_WRITE,
        *,
        order: bool = False,
        sys_flag: int = 0,
    ) -> TopicConfig:
        """Return a topic that the broker needs (retries, dead letters); create it if missing."""
        wanted = TopicConfig(
            topic, queue_nums, queue_nums, perm, topic_sys_flag=sys_flag, order=order
        )
        self.create_all([wanted])
        return self._topics.get(topic, wanted)

    def create_all(self, wanted: Iterable[TopicConfig]) -> None:
        """Create missing topics, and change ``order`` of existing ones, with one save."""
        made = []
        with self._lock:
            for config in wanted:
                known = self._topics.get(config.topic_name)
                if known is None or known.order != config.order:
                    new = config if known is None else replace(known, order=config.order)
                    self._put(new)
                    made.append(new)
        if made:
            self._persist_or_log()
            self._tell(*made)

    def update(self, config: TopicConfig, attribute_changes: Mapping[str, str]) -> TopicConfig:
        """Create or change a topic; return its new settings.

        Raises
        ------
        ValueError
            A change of the attributes is not allowed.
        """
        return self.update_all([(config, attribute_changes)])[0]

    def update_all(
        self, changes: Iterable[tuple[TopicConfig, Mapping[str, str]]]
    ) -> list[TopicConfig]:
        """Do `update` for several topics with one save: all, or none if one is wrong."""
        made = []
        with self._lock:
            for config, attribute_changes in changes:
                known = self._topics.get(config.topic_name)
                current = None if known is None else known.attributes
                attributes = changed_attributes(TOPIC_ATTRIBUTES, current, attribute_changes)
                made.append(replace(config, attributes=attributes))
            for config in made:
                self._put(config)
        self._changed(*made)
        return made

    def touch(self) -> None:
        """Increment the version, and notify the listeners: all topics may have changed."""
        with self._lock:
            self._count_version()
        self._changed(None)

    def set_order_topics(self, topics: Iterable[str]) -> None:
        """Mark existing topics as order topics, as name servers report."""
        with self._lock:
            found = [config for name in topics if (config := self._topics.get(name))]
            changed = [replace(config, order=True) for config in found if not config.order]
            for config in changed:
                self._topics[config.topic_name] = config
            if changed:
                self._count_version()
        if changed:
            self._persist_or_log()

    def delete(self, topic: str) -> bool:
        """Delete a topic; return whether it existed."""
        with self._lock:
            if self._topics.pop(topic, None) is None:
                return False
            self._unknown.pop(topic, None)
            self._count_version()
        self._changed(None)
        return True

    def _inherited(
        self, topic: str, default_topic: str, client_queue_nums: int, sys_flag: int
    ) -> TopicConfig | None:
        model = self._topics.get(default_topic)
        if model is None or not model.perm & PERM_INHERIT:
            return None
        if default_topic == DEFAULT_TOPIC and not self._config.auto_create_topic_enable:
            return None
        queue_nums = max(0, min(client_queue_nums, model.write_queue_nums))
        return TopicConfig(
            topic,
            queue_nums,
            queue_nums,
            model.perm & ~PERM_INHERIT,
            model.topic_filter_type,
            sys_flag,
        )

    def _put(self, config: TopicConfig) -> None:
        logger.info("topic %s: %s", config.topic_name, config)
        self._topics[config.topic_name] = config
        self._count_version()

    def _changed(self, *changed: TopicConfig | None) -> None:
        try:
            self.persist()
        finally:
            self._tell(*changed)

    def _tell(self, *changed: TopicConfig | None) -> None:
        if not changed:
            return
        # One call for many changes: each call sends a request to all name servers.
        config = changed[0] if len(changed) == 1 else None
        for listener in self._listeners:
            listener(config)

    def _take(self, data: dict[str, Any], whole: bool) -> Mapping[str, Any]:
        topics = parse_topic_configs(data)
        if whole:
            self._topics, self._unknown = {}, {}
        self._unknown.update(entries_of(data, _TABLE))
        self._topics.update(topics)
        return without(data, _TABLE)

    def _tables(self) -> dict[str, Any]:
        return {
            _TABLE: {
                name: {**self._unknown.get(name, {}), **config_json(config)}
                for name, config in self._topics.items()
            }
        }


def _own_topics(config: BrokerConfig) -> Iterable[TopicConfig]:
    cluster, name = config.broker_cluster_name, config.broker_name
    read_write = PERM_READ | PERM_WRITE
    yield TopicConfig(SELF_TEST_TOPIC, 1, 1)
    if config.auto_create_topic_enable:
        queues = config.default_topic_queue_nums
        yield TopicConfig(DEFAULT_TOPIC, queues, queues, read_write | PERM_INHERIT)
    yield TopicConfig(BENCHMARK_TOPIC, _BENCHMARK_QUEUES, _BENCHMARK_QUEUES)
    yield TopicConfig(cluster, perm=PERM_INHERIT | (config.cluster_topic_enable and read_write))
    yield TopicConfig(name, 1, 1, PERM_INHERIT | (config.broker_topic_enable and read_write))
    yield TopicConfig(SCHEDULE_TOPIC, _SCHEDULE_QUEUES, _SCHEDULE_QUEUES)
    if config.trace_topic_enable:
        yield TopicConfig(config.msg_trace_topic_name, 1, 1)
    revive_queues = config.revive_queue_num
    yield TopicConfig(f"{SYSTEM_PREFIX}REVIVE_LOG_{cluster}", revive_queues, revive_queues)
    yield TopicConfig(f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{name}", 1, 1, PERM_INHERIT)
    for topic in (OFFSET_MOVED_TOPIC, f"{cluster}_REPLY_TOPIC", HALF_TOPIC, OP_TOPIC, TIMER_TOPIC):
        yield TopicConfig(topic, 1, 1)
