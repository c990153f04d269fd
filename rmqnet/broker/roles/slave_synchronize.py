"""A slave's topics, groups and offsets: those of its master, from time to time.

Source: RocketMQ ``SlaveSynchronize`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.errors import ClientError
from rmqnet.remoting.codes import RequestCode
from store_core.config.config_files import parse_delay_offsets
from store_core.config.config_writing import save_config_file
from store_core.config.data_version import parse_data_version
from store_core.errors import StoreError
from store_core.files.file_writing import replace_file

if TYPE_CHECKING:
    from rmqnet.broker.roles.master_calls import MasterCalls
    from rmqnet.broker.state.config_manager import ConfigManager
    from rmqnet.broker.state.consumer_offset_manager import ConsumerOffsetManager
    from rmqnet.broker.state.subscription_group_manager import SubscriptionGroupManager
    from rmqnet.broker.state.topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)

DELAY_OFFSETS_FILE = "delayOffset.json"


class SlaveSynchronize:
    """Takes over what a master has, kind by kind; one that fails does not keep the others.

    Parameters
    ----------
    calls
        Asks the master.
    topics, groups, offsets
        Of the slave.
    on_topics
        Called when topics have changed.
    """

    def __init__(
        self,
        calls: MasterCalls,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        on_topics: Callable[[], object],
    ) -> None:
        self._calls = calls
        self._topics, self._groups, self._offsets = topics, groups, offsets
        self._on_topics = on_topics
        self._delays: dict[str, Any] | None = None
        self._failures: dict[RequestCode, str] = {}

    def run_once(self, master: str) -> bool:
        """Take over everything; return whether the master answered all of it."""
        kinds = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self._take_topics,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._take_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._take_delays,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._take_groups,
        }
        return all([self._take(master, code, take) for code, take in kinds.items()])

    def _take(self, master: str, code: RequestCode, take: Callable[[dict[str, Any]], None]) -> bool:
        try:
            data = self._calls.table(master, code)
            if not data:
                raise ClientError("an empty answer")
            take(data)
        except (ClientError, StoreError, ValueError) as err:
            reason = str(err)
            if self._failures.get(code) != reason:
                logger.warning("master %s: %s is not taken over: %s", master, code.name, reason)
            self._failures[code] = reason
            return False
        self._failures.pop(code, None)
        return True

    def _take_topics(self, data: dict[str, Any]) -> None:
        if _take_newer(self._topics, data):
            self._on_topics()

    def _take_groups(self, data: dict[str, Any]) -> None:
        _take_newer(self._groups, data)

    def _take_offsets(self, data: dict[str, Any]) -> None:
        self._offsets.assign(data)
        self._offsets.persist()

    def _take_delays(self, data: dict[str, Any]) -> None:
        """Keep them for whoever delivers when this slave becomes a master."""
        parse_delay_offsets(data)
        if data != self._delays:
            root = self._offsets.root
            save_config_file(root, DELAY_OFFSETS_FILE, data, replace_file, is_sound=True)
            self._delays = data


def _take_newer(manager: ConfigManager, data: dict[str, Any]) -> bool:
    """Take a table over unless it has the version that is here; return whether it was taken."""
    if parse_data_version(data.get("dataVersion")) == manager.data_version:
        return False
    manager.assign(data, whole=True)
    manager.persist()
    return True
