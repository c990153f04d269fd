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
"""Whose settings topics inherit that a send creates."""
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
"""Called with a topic that is new or has changed; None: look at all, several are or are gone."""


class TopicConfigManager(ConfigManager):
    """The topics of a broker; changes are saved at once.

    Where that fails, who asked for a change gets the error; what clients only need is made all the
    same, and logged. In memory, and for the listeners, it holds in either case.

    A broker's own topics are there from the beginning; `load` changes them to what the file says.
    """

    FILE_NAME = "topics.json"

    def _begin(self) -> None:
        self._topics = {each.topic_name: each for each in _own_topics(self._config)}
        self._system = {*_ALWAYS_SYSTEM, *self._topics}
        self._unknown: dict[str, dict[str, Any]] = {}
        self._listeners: list[TopicListener] = []

    def on_change(self, listener: TopicListener) -> None:
        """Have a function called after each change, in the thread that made it."""
        self._listeners.append(listener)

    def select(self, topic: str) -> TopicConfig | None:
        """Return the settings of a topic; None: there is none."""
        return self._topics.get(topic)

    def all(self) -> dict[str, TopicConfig]:
        """Return all topics by name; a copy."""
        with self._lock:
            return dict(self._topics)

    def is_order_topic(self, topic: str) -> bool:
        """Return whether the topic is there and is one whose order counts."""
        config = self._topics.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        """Return whether a topic is the broker's own: nobody creates or deletes it."""
        return topic in self._system or topic.startswith(SYSTEM_PREFIX)

    def system_topics(self) -> list[str]:
        """Return the names of the broker's own topics, whether they are there or not."""
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
        """Return a topic that a client sends to, made like a default topic if it is not there.

        Parameters
        ----------
        client_queue_nums
            Queues that the client wants; the default topic's write queues are the most.
        sys_flag
            Bits: 1 unit, 2 unit subscriptions.

        Returns
        -------
        config
            None: it is not there and may not be made.
        """
        with self._lock:
            known = self._topics.get(topic)
            if known is not None:
                return known
            made = self._inherited(topic, default_topic, client_queue_nums, sys_flag)
            if made is None:
                logger.warning(
                    "%s sends to topic %s, which is not there: %s gives no settings for it",
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
        """Return a topic that the broker itself needs (retries, dead letters), made if need be."""
        wanted = TopicConfig(
            topic, queue_nums, queue_nums, perm, topic_sys_flag=sys_flag, order=order
        )
        self.create_all([wanted])
        return self._topics.get(topic, wanted)

    def create_all(self, wanted: Iterable[TopicConfig]) -> None:
        """Make those topics that are not there, and change ``order`` of others, with one save."""
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
        """Make or change a topic; return what it is now.

        Raises
        ------
        ValueError
            A change of the attributes is not allowed.
        """
        return self.update_all([(config, attribute_changes)])[0]

    def update_all(
        self, changes: Iterable[tuple[TopicConfig, Mapping[str, str]]]
    ) -> list[TopicConfig]:
        """Do `update` for several topics, with one save; all or, where one is wrong, none."""
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
        """Count the version on: all topics mean something else now."""
        with self._lock:
            self._count_version()
        self._changed(None)

    def set_order_topics(self, topics: Iterable[str]) -> None:
        """Note that the order of these topics counts, as name servers say."""
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
        """Forget a topic; return whether it was there."""
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
        # Many are told as one: each telling asks all name servers.
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
