# SPDX-License-Identifier: Apache-2.0
"""Offsets of consumer groups: ``config/consumerOffset.json``.

Source: RocketMQ ``ConsumerOffsetManager`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from rmqnet.broker.state.config_manager import ConfigManager, without
from store_core.config.config_files import (
    find_json_file,
    offsets_without_group,
    parse_consumer_offsets,
)
from store_core.errors import StoreConfigError, StoreFormatError, StorePermissionError
from store_core.files.store_directory import StoreDirectory, local_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.broker.broker_config import BrokerConfig

logger = logging.getLogger(__name__)
_TABLE, _TOPICS_OF_GROUPS = "offsetTable", "groupTopicMap"
NO_OFFSET = -1
_Table = dict[tuple[str, str], dict[int, int]]


class ConsumerOffsetManager(ConfigManager):
    """The next queue offset that a group reads, by (group, topic) and queue id.

    Only `persist` saves them, which the broker calls every few seconds. Offsets of pulls that are
    not committed (`commit_pull`) and pending resets (`assign_reset`) are not saved.
    """

    FILE_NAME = "consumerOffset.json"

    def _begin(self) -> None:
        self._offsets: _Table = {}
        self._nameless: dict[str, dict[int, int]] = {}
        self._resets: _Table = {}
        self._pulled: _Table = {}
        self._commits = 0
        self._changes, self._saved_changes = 0, -1

    def persist(self) -> None:
        """Write the file if anything has changed; see ``ConfigManager.persist``."""
        changes = self._changes
        if changes != self._saved_changes:
            super().persist()
            self._saved_changes = changes

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, client_address: str = ""
    ) -> None:
        """Record a group's next offset, even if it is lower than the recorded one."""
        with self._lock:
            queues = self._offsets.setdefault((group, topic), {})
            before = queues.get(queue_id, NO_OFFSET)
            queues[queue_id] = offset
            self._commits += 1
            self._changes += 1
            if self._commits % self._config.consumer_offset_update_version_step == 0:
                self._count_version()
        if offset < before:
            logger.warning(
                "%s sets group %s back in queue %s/%d: from %d to %d",
                client_address or "the broker",
                group,
                topic,
                queue_id,
                before,
                offset,
            )

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return a group's next offset in a queue; -1 if none is recorded."""
        if self._config.use_server_side_reset_offset:
            reset = self._resets.get((group, topic), {}).get(queue_id)
            if reset is not None:
                return reset
        return self._offsets.get((group, topic), {}).get(queue_id, NO_OFFSET)

    def query_all(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's recorded offsets in all queues of a topic; a copy."""
        with self._lock:
            return dict(self._offsets.get((group, topic), {}))

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record the end of the messages that a group has pulled."""
        with self._lock:
            self._pulled.setdefault((group, topic), {})[queue_id] = offset

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return the end of the messages that a group has pulled; without one, as `query`."""
        pulled = self._pulled.get((group, topic), {}).get(queue_id)
        return self.query(group, topic, queue_id) if pulled is None else pulled

    def clear_pull(self, group: str, topic: str) -> None:
        """Remove the ends of the messages of a topic that a group has pulled."""
        with self._lock:
            self._pulled.pop((group, topic), None)

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Reset a group's offset: its next pull returns it, and its commits are ignored.

        Commits count again after `take_reset`.
        """
        with self._lock:
            self._resets.setdefault((group, topic), {})[queue_id] = offset
            self._offsets.setdefault((group, topic), {})[queue_id] = offset
            self._changes += 1

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Return whether a group has not pulled since its offset was reset."""
        return queue_id in self._resets.get((group, topic), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return and remove the offset of a reset; None if there is none."""
        with self._lock:
            return self._resets.get((group, topic), {}).pop(queue_id, None)

    def topics_of(self, group: str) -> set[str]:
        """Return the topics in which a group has offsets."""
        with self._lock:
            return {topic for member, topic in self._offsets if member == group}

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups that have offsets in a topic."""
        with self._lock:
            return {group for group, name in self._offsets if name == topic}

    def remove_group(self, group: str) -> None:
        """Remove all offsets of a group."""
        self._remove(lambda key: key[0] == group)

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of all groups in a topic."""
        self._remove(lambda key: key[1] == topic)

    def clone(self, source_group: str, group: str, topic: str) -> None:
        """Copy a group's offsets in a topic to another group."""
        with self._lock:
            offsets = self._offsets.get((source_group, topic))
            if offsets is not None:
                self._offsets[group, topic] = dict(offsets)
                self._changes += 1

    def _remove(self, is_meant: Callable[[tuple[str, str]], bool]) -> None:
        with self._lock:
            self._changes += 1
            for table in (self._offsets, self._resets, self._pulled):
                for key in [key for key in table if is_meant(key)]:
                    del table[key]

    def _take(self, data: dict[str, Any], whole: bool) -> Mapping[str, Any]:
        offsets, nameless = parse_consumer_offsets(data), offsets_without_group(data)
        self._offsets = offsets if whole else {**self._offsets, **offsets}
        self._nameless = nameless if whole else {**self._nameless, **nameless}
        self._changes += 1
        return without(data, _TABLE, _TOPICS_OF_GROUPS)

    def _tables(self) -> dict[str, Any]:
        topics: dict[str, list[str]] = {}
        for group, topic in self._offsets:
            topics.setdefault(group, []).append(topic)
        return {
            _TOPICS_OF_GROUPS: topics,
            _TABLE: {
                **self._nameless,
                **{
                    f"{topic}@{group}": dict(each) for (group, topic), each in self._offsets.items()
                },
            },
        }


class OffsetsBesideStore(ConsumerOffsetManager):
    """The offsets of the store, and later commits, which are not written to the store.

    Parameters
    ----------
    path
        File in the form of ``consumerOffset.json``, whose offsets override those of the store; if
        None, changes are in memory only.

    Raises
    ------
    StoreConfigError
        The file is in the store.
    """

    def __init__(
        self, config: BrokerConfig, root: str, clock: Callable[[], int], path: str | None
    ) -> None:
        super().__init__(config, root, clock, is_read_only=path is None)
        self._file = None if path is None else str(Path(local_path(path)).absolute())
        if self._file is not None and not StoreDirectory(root).leaves(self._file):
            raise StoreConfigError(
                f"offsets_file={path}: is in the store, which is only read; choose another place"
            )

    def load(self) -> None:
        """Load the offsets of the store, as far as they are readable, then those of the file.

        Raises
        ------
        StoreFormatError, StoreReadError
            The file, which would be overwritten, cannot be read.
        """
        try:
            super().load()
        except (StoreFormatError, StorePermissionError) as err:
            logger.warning("%s; groups start as if they had no saved offsets", err)
        if self._file is None:
            return
        place = StoreDirectory(str(Path(self._file).parent))
        found = find_json_file(place, self._file, self.assign)
        self._is_sound = found is not None and found[1]

    def _path(self) -> str:
        return super()._path() if self._file is None else self._file
