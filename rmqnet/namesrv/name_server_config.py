# SPDX-License-Identifier: Apache-2.0
"""Settings of a name server, and which of them may change while it runs.

Source: RocketMQ ``NamesrvConfig``, ``NettyServerConfig``, ``Configuration`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from store_core.config.config_checks import INT_MAX, Settings, properties_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIXED = {
    "host",
    "port",
    "kv_config_path",
    "client_request_thread_pool_nums",
    "default_thread_pool_nums",
    "client_request_thread_pool_queue_capacity",
    "default_thread_pool_queue_capacity",
    "scan_not_active_broker_interval",
}
BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
"""RocketMQ's keys that requests may not change."""


@dataclass(frozen=True)
class NameServerConfig:
    """Settings of a name server, mostly with RocketMQ's defaults.

    Parameters
    ----------
    host, port
        Address to listen at; port 0 takes any free port.
    kv_config_path
        File of the values that admins put; if empty, they are in memory only.

    Raises
    ------
    StoreConfigError
        A value has the wrong type or is out of bounds.
    """

    host: str = "127.0.0.1"
    port: int = 9876
    kv_config_path: str = ""
    scan_not_active_broker_interval: int = 5000
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    enable_topic_list: bool = True
    enable_all_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45
    delete_topic_with_broker_registration: bool = False
    support_acting_master: bool = False
    # Fewer threads than RocketMQ's 8 and 16, as Python runs only one at a time.
    client_request_thread_pool_nums: int = 2
    default_thread_pool_nums: int = 2
    client_request_thread_pool_queue_capacity: int = 50_000
    default_thread_pool_queue_capacity: int = 10_000

    def __post_init__(self) -> None:
        _SETTINGS.check(vars(self))

    def to_text(self) -> str:
        """Return all settings as Java properties, sorted by key."""
        return properties_text(_SETTINGS.texts(self))

    def changed(self, properties: Mapping[str, str]) -> NameServerConfig:
        """Return a copy with the properties that may change while a name server runs.

        Others are ignored, as RocketMQ ignores keys that it does not know.

        Raises
        ------
        StoreConfigError
            A value is invalid for its key.
        """
        values = {
            name: _SETTINGS.parse(name, properties[key])
            for name, key in _SETTINGS.keys.items()
            if key in properties and name not in _FIXED
        }
        return replace(self, **values)


_SETTINGS = Settings(
    NameServerConfig,
    {"port": (0, 65_535)},
    (1, INT_MAX),
    spellings={"host": "bindAddress", "port": "listenPort"},
)
