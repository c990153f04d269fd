# SPDX-License-Identifier: Apache-2.0
"""The consumer groups of a broker: ``config/subscriptionGroup.json``.

Source: RocketMQ ``SubscriptionGroupManager``, ``MixAll`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqnet.broker.state.attributes import GROUP_ATTRIBUTES, changed_attributes
from rmqnet.broker.state.config_manager import ConfigManager, without
from rmqnet.client.names import MAX_GROUP_CHARACTERS_5_5, check_group_name
from rmqnet.errors import ClientError
from store_core.config.config_files import (
    SubscriptionGroupConfig,
    config_json,
    entries_of,
    parse_group_configs,
)
from store_core.config.lenient_json import json_object, json_whole_number
from store_core.files.store_directory import StoreDirectory
from store_core.index.index_entries import opened_by_5_4
from store_core.topics import SYSTEM_GROUP_PREFIX, TRANSACTION_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


logger = logging.getLogger(__name__)

READ_FORBIDDEN = 1 << 2
"""Bit of a group that may not read a topic. Source: RocketMQ ``PermName`` (release 5.3.3)."""
_TABLE, _FORBIDDEN = "subscriptionGroupTable", "forbiddenTable"
_OWN_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)


class SubscriptionGroupManager(ConfigManager):
    """The consumer groups of a broker; changes are saved immediately, see ``TopicConfigManager``.

    A broker's own groups exist from the start; `load` gives them the settings of the file.
    """

    FILE_NAME = "subscriptionGroup.json"

    def _begin(self) -> None:
        self._groups = {name: SubscriptionGroupConfig(name) for name in _OWN_GROUPS}
        self._unknown: dict[str, dict[str, Any]] = {}
        self._forbidden: dict[str, dict[str, int]] = {}

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group, created if allowed; None if it does not exist."""
        return self._groups.get(group) or self.find_all([group]).get(group)

    def find_all(self, groups: Iterable[str]) -> dict[str, SubscriptionGroupConfig]:
        """Do `find` for several groups with one save; missing groups are omitted."""
        found, is_any_new = {}, False
        with self._lock:
            for group in groups:
                known = self._groups.get(group)
                if known is None and self._may_create(group):
                    known, is_any_new = SubscriptionGroupConfig(group), True
                    self._put(known)
                if known is not None:
                    found[group] = known
        if is_any_new:
            self._persist_or_log()
        return found

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the settings of a group; None if it does not exist."""
        return self._groups.get(group)

    def check_new_name(self, group: str) -> str:
        """Return the name of a new group; raise ClientError if it is invalid.

        If a broker of 5.4 or later has opened the store, the length is limited as in 5.5, whose
        clients cannot use longer names.
        """
        check_group_name(group)
        if len(group) > MAX_GROUP_CHARACTERS_5_5 and opened_by_5_4(StoreDirectory(self.root)):
            check_group_name(group, MAX_GROUP_CHARACTERS_5_5)
        return group

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """Return all groups by name; a copy."""
        with self._lock:
            return dict(self._groups)

    def json_of(self, group: str) -> dict[str, Any] | None:
        """Return the settings of a group as brokers write them; None if it does not exist."""
        config = self._groups.get(group)
        if config is None:
            return None
        entry = {**self._unknown.get(group, {}), **config_json(config)}
        return {key: entry[key] for key in sorted(entry)}

    def update(self, config: SubscriptionGroupConfig, item: Mapping[str, Any]) -> None:
        """Create or change a group.

        Raises
        ------
        ValueError
            A change of the attributes is not allowed.
        """
        self.update_all([(config, item)])

    def update_all(
        self, changes: Iterable[tuple[SubscriptionGroupConfig, Mapping[str, Any]]]
    ) -> None:
        """Do `update` for several groups with one save: all, or none if one is wrong."""
        made = []
        with self._lock:
            for config, item in changes:
                known = self._groups.get(config.group_name)
                current = None if known is None else known.attributes
                attributes = changed_attributes(GROUP_ATTRIBUTES, current, config.attributes)
                made.append((replace(config, attributes=attributes), dict(item)))
            for config, unknown in made:
                self._put(config)
                self._unknown[config.group_name] = unknown
        if made:
            self.persist()

    def disable_consume(self, group: str) -> None:
        """Stop a group from reading; saved only with the next change, as in RocketMQ."""
        with self._lock:
            known = self._groups.get(group)
            if known is not None:
                self._put(replace(known, consume_enable=False))

    def delete(self, group: str) -> bool:
        """Delete a group; return whether it existed."""
        with self._lock:
            self._forbidden.pop(group, None)
            self._unknown.pop(group, None)
            if self._groups.pop(group, None) is None:
                return False
            self._count_version()
        self.persist()
        return True

    def forbidden(self, group: str, topic: str) -> int:
        """Return the bits of operations on a topic that are forbidden to a group; 0 if none."""
        return max(0, self._forbidden.get(group, {}).get(topic, 0))

    def set_forbidden(self, group: str, topic: str, bits: int) -> None:
        """Set those bits; 0 removes the group's bits of all topics, as in RocketMQ."""
        with self._lock:
            if bits <= 0:
                self._forbidden.pop(group, None)
                return
            self._forbidden.setdefault(group, {})[topic] = bits
            self._count_version()
        self.persist()

    def _may_create(self, group: str) -> bool:
        config = self._config
        is_system = group.startswith(SYSTEM_GROUP_PREFIX)
        if not config.auto_create_subscription_group and not (
            is_system and config.enable_create_sys_group
        ):
            return False
        try:
            self.check_new_name(group)
        except ClientError as err:
            logger.warning("cannot create a group: %s", err)
            return False
        return True

    def _put(self, config: SubscriptionGroupConfig) -> None:
        logger.info("group %s: %s", config.group_name, config)
        self._groups[config.group_name] = config
        self._count_version()

    def _take(self, data: dict[str, Any], whole: bool) -> Mapping[str, Any]:
        groups = parse_group_configs(data)
        forbidden = {
            str(group): {
                str(topic): json_whole_number(bits, f"{_FORBIDDEN}.{group}.{topic}")
                for topic, bits in json_object(topics, f"{_FORBIDDEN}.{group}").items()
            }
            for group, topics in json_object(data.get(_FORBIDDEN), _FORBIDDEN).items()
        }
        if whole:
            self._groups, self._unknown, self._forbidden = {}, {}, {}
        self._unknown.update(entries_of(data, _TABLE))
        self._groups.update(groups)
        self._forbidden.update(forbidden)
        return without(data, _TABLE, _FORBIDDEN)

    def _tables(self) -> dict[str, Any]:
        return {
            _FORBIDDEN: {group: dict(topics) for group, topics in self._forbidden.items()},
            _TABLE: {name: self.json_of(name) for name in self._groups},
        }
