# SPDX-License-Identifier: Apache-2.0
"""Settings of a broker, by RocketMQ's keys in snake_case."""

from __future__ import annotations

import os
import socket
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store_core.config.config_checks import INT_MAX, Settings, properties_text, shortened
from store_core.config.message_store_config import STORE_SETTINGS
from store_core.errors import StoreConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from store_core.config.message_store_config import MessageStoreConfig

_PROCESSORS = os.cpu_count() or 1
_PORTS = (0, 65_535)
_FROM_ZERO = (0, INT_MAX)
_BOUNDS = {
    "listen_port": _PORTS,
    "broker_id": (0, 2**63 - 1),
    "broker_permission": (0, 15),
    "start_accept_send_request_time_stamp": (0, 2**63 - 1),
}
_FIXED_KEYS = ("brokerConfigPath", "configBlackList", "brokerName", "brokerId", "listenPort")
_BLANKS = string.whitespace  # without those of Unicode, as in Java
_FIXED_ENDS = ("ThreadPoolNums", "QueueCapacity")


@dataclass
class BrokerConfig:
    """Settings of a broker (RocketMQ ``BrokerConfig``, ``BrokerIdentity``, release 5.3.3).

    Only settings with an effect here; `MessageStoreConfig` has those of the store, including
    transactions. Defaults are RocketMQ's unless a field says otherwise; times are in ms unless
    noted. `update` changes the settings of a running broker with immediate effect.

    Raises
    ------
    StoreConfigError
        A value is out of bounds; the text names RocketMQ's key.
    """

    broker_name: str = ""
    """If empty, the name of this machine."""
    broker_cluster_name: str = "DefaultCluster"
    broker_id: int = 0
    """0 for a master; other ids for its slaves."""
    broker_ip1: str = "127.0.0.1"
    """Host that clients connect to; RocketMQ's default is the machine's address."""
    listen_port: int = 10_911
    """0 takes any free port."""
    namesrv_addr: str = ""
    """Name servers, ``host:port`` separated by semicolons."""
    broker_permission: int = 6
    """Bits: 2 write, 4 read; for all topics together."""
    region_id: str = "DefaultRegion"
    trace_on: bool = True

    default_topic_queue_nums: int = 8
    """Most queues of a topic that a send creates."""
    max_queues_per_topic: int = 16_384
    """Most queues that a request may give a topic, or a group for retries; not in RocketMQ."""
    max_topics_per_request: int = 1000
    """Most topics that a request may create, or a group may subscribe to in a heartbeat; not in
    RocketMQ."""
    max_groups_per_request: int = 1000
    """Most groups in one request or heartbeat; not in RocketMQ."""
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    enable_create_sys_group: bool = True
    """Create groups ``CID_RMQ_SYS_…`` even if other groups are not created."""
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    revive_queue_num: int = 8
    validate_system_topic_when_update_topic: bool = True
    clear_retry_topic_when_delete_topic: bool = True
    """Delete ``%RETRY%group_topic`` with the topic."""
    enable_property_filter: bool = False
    """Allow SQL92."""
    filter_support_retry: bool = False
    reject_transaction_message: bool = False
    enable_mixed_message_type: bool = False
    store_reply_message_enable: bool = True
    slave_read_enable: bool = False
    reject_pull_consumer_enable: bool = False
    lite_pull_message_enable: bool = True

    long_polling_enable: bool = True
    short_polling_time_mills: int = 1000
    """How long pulls wait without long polling."""
    notify_consumer_ids_changed_enable: bool = True
    use_server_side_reset_offset: bool = True
    """Reset offsets in the broker, as 5.x does; if False, have the clients do it."""
    flush_consumer_offset_interval: int = 5000
    consumer_offset_update_version_step: int = 500
    """Number of commits after which the version of the offsets increases."""
    channel_expired_timeout: int = 120_000
    """Silence after which a client counts as gone."""
    subscription_expired_timeout: int = 600_000
    """Silence after which a subscription without clients is removed."""

    register_name_server_period: int = 30_000
    """Interval of registrations with name servers; see `register_period_ms`."""
    register_broker_timeout_mills: int = 24_000
    force_register: bool = True
    compressed_register: bool = False
    forward_timeout: int = 3000

    broker_fast_failure_enable: bool = True
    wait_time_mills_in_send_queue: int = 200
    wait_time_mills_in_pull_queue: int = 5000
    wait_time_mills_in_heartbeat_queue: int = 31_000
    wait_time_mills_in_transaction_queue: int = 3000
    start_accept_send_request_time_stamp: int = 0
    """Sends before this time are refused."""

    send_message_thread_pool_nums: int = min(_PROCESSORS, 4)
    pull_message_thread_pool_nums: int = 4
    """This pool and the following have fewer threads than RocketMQ's: only one computes."""
    query_message_thread_pool_nums: int = 4
    admin_broker_thread_pool_nums: int = 4
    heartbeat_thread_pool_nums: int = 2
    client_manage_thread_pool_nums: int = 2
    """For offsets, locks and lists of members; its requests are short, too."""
    end_transaction_thread_pool_nums: int = 4
    process_reply_message_thread_pool_nums: int = 2
    send_thread_pool_queue_capacity: int = 10_000
    pull_thread_pool_queue_capacity: int = 100_000
    query_thread_pool_queue_capacity: int = 20_000
    admin_broker_thread_pool_queue_capacity: int = 10_000
    heartbeat_thread_pool_queue_capacity: int = 50_000
    client_manager_thread_pool_queue_capacity: int = 1_000_000
    end_transaction_pool_queue_capacity: int = 100_000
    reply_thread_pool_queue_capacity: int = 10_000

    def __post_init__(self) -> None:
        if not self.broker_name:
            self.broker_name = socket.gethostname() or "DEFAULT_BROKER"
        self.update({})

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of `namesrv_addr`."""
        return tuple(part.strip() for part in self.namesrv_addr.split(";") if part.strip())

    @property
    def register_period_ms(self) -> int:
        """`register_name_server_period`, limited to RocketMQ's range of 10 to 60 seconds."""
        return max(10_000, min(self.register_name_server_period, 60_000))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Make a configuration from texts by RocketMQ's keys.

        Keys that have no field are ignored.

        Raises
        ------
        StoreConfigError
            A text cannot be parsed, or a value is out of bounds.
        """
        return cls(**_parsed(properties))

    def update(self, properties: Mapping[str, str]) -> None:
        """Change settings by RocketMQ's keys: all, or none if one is wrong.

        Raises
        ------
        StoreConfigError
            As `from_properties`.
        """
        changes = _parsed(properties)
        _SETTINGS.check({**vars(self), **changes})
        for name, value in changes.items():
            setattr(self, name, value)

    @staticmethod
    def keys() -> frozenset[str]:
        """Return RocketMQ's keys of all settings."""
        return frozenset(_SETTINGS.keys.values())

    def fixed_keys(self, keys: Iterable[str]) -> list[str]:
        """Return those of the keys that cannot change while the broker runs."""
        return [key for key in keys if key in _FIXED_KEYS or key.endswith(_FIXED_ENDS)]

    def to_properties(self) -> dict[str, str]:
        """Return all settings as texts, by RocketMQ's keys."""
        return _SETTINGS.texts(self)


def config_text(config: BrokerConfig, store: MessageStoreConfig) -> str:
    """Return all settings of a broker and its store as Java properties, sorted by key.

    One line per setting: ``key=value``. Settings without a value are omitted.
    """
    return properties_text({**STORE_SETTINGS.texts(store), **config.to_properties()})


def parse_config_text(text: str) -> dict[str, str]:
    """Return the properties in the text of a request to change settings.

    Raises
    ------
    StoreConfigError
        A line is neither ``key=value`` nor empty nor a comment.
    """
    properties = {}
    for line in text.splitlines():
        plain = line.strip()
        if not plain or plain[0] in "#!":
            continue
        key, separator, value = plain.partition("=")
        if not separator:
            raise StoreConfigError(f"{shortened(plain)}: expected key=value")
        properties[key.strip()] = value.strip()
    return properties


_SETTINGS = Settings(BrokerConfig, _BOUNDS, _FROM_ZERO, spellings={"broker_ip1": "brokerIP1"})


def _parsed(properties: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: _SETTINGS.parse(name, properties[key].strip(_BLANKS))
        for name, key in _SETTINGS.keys.items()
        if key in properties
    }
