"""Settings of a name server, and what may change while it runs.

Source: RocketMQ ``NamesrvConfig``, ``NettyServerConfig``, ``Configuration`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from store_core.config.config_checks import INT_MAX, camel_case, check_value, parse_value

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_PORT = 65535
_NAMES = {"host": "bindAddress", "port": "listenPort"}
_BOUNDS = {"port": (0, _MAX_PORT)}
_POSITIVE = (1, INT_MAX)
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
"""RocketMQ's keys that nobody may change from elsewhere."""


@dataclass(frozen=True)
class NameServerConfig:
    """Settings of a name server, with RocketMQ's defaults where nothing else is said.

    Parameters
    ----------
    host, port
        Where it listens; 127.0.0.1 unless told otherwise, port 0: one that is free.
    kv_config_path
        File of the values that admins put; empty: they are kept in memory only.

    Raises
    ------
    StoreConfigError
        A value is of another kind or out of bounds.
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
    # Fewer threads than RocketMQ's 8 and 16: of Python only one runs at a time.
    client_request_thread_pool_nums: int = 2
    default_thread_pool_nums: int = 2
    client_request_thread_pool_queue_capacity: int = 50_000
    default_thread_pool_queue_capacity: int = 10_000

    def __post_init__(self) -> None:
        for each in fields(self):
            bounds = _BOUNDS.get(each.name, _POSITIVE)
            check_value(_key(each.name), str(each.type), getattr(self, each.name), bounds)

    def to_text(self) -> str:
        """Return all settings as Java properties, sorted by key."""
        lines = sorted(f"{_key(each.name)}={_text(self, each.name)}\n" for each in fields(self))
        return "".join(lines)

    def changed(self, properties: Mapping[str, str]) -> NameServerConfig:
        """Return it with the values of properties that may change while a name server runs.

        Others are left out, as RocketMQ leaves out what it does not know.

        Raises
        ------
        StoreConfigError
            A value is none of its key.
        """
        values: dict[str, Any] = {}
        for each in fields(self):
            key = _key(each.name)
            if key in properties and each.name not in _FIXED:
                values[each.name] = parse_value(key, str(each.type), properties[key])
        return replace(self, **values)


def _key(name: str) -> str:
    return _NAMES.get(name) or camel_case(name)


def _text(config: NameServerConfig, name: str) -> str:
    value = getattr(config, name)
    return str(value).lower() if isinstance(value, bool) else str(value)
