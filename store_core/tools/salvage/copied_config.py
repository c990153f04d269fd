# SPDX-License-Identifier: Apache-2.0
"""Copies the broker's files in ``config``, and adjusts queue offsets in them to moved messages.

Source: RocketMQ ``ConsumerOffsetManager``, ``LmqConsumerOffsetManager``, ``ScheduleMessageService``
(release 5.3.3).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable

from store_core.config.config_database import (
    CONSUMER_OFFSETS,
    GROUPS,
    TOPICS,
    config_databases,
)
from store_core.config.config_files import (
    BATCH_QUEUE_TYPE,
    QUEUE_TYPE_ATTRIBUTE,
    content_of_databases,
    load_topics,
)
from store_core.config.config_writing import merge_topics
from store_core.config.data_version import DataVersion
from store_core.config.lenient_json import decode_lenient_json
from store_core.database.read_only_database import databases_are_readable
from store_core.errors import StoreFormatError
from store_core.files.file_writing import make_directory, put_file
from store_core.files.store_directory import StoreDirectory
from store_core.layout import CONFIG_DIR, LMQ_PREFIX, SCHEDULE_TOPIC, TIMER_CHECKPOINT_FILE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from store_core.tools.salvage.moved_offsets import MovedOffsets

    Queues = Mapping[tuple[str, int], MovedOffsets]

_TOPICS, _GROUPS = "topics.json", "subscriptionGroup.json"
_DATABASES = {_TOPICS: TOPICS, "consumerOffset.json": CONSUMER_OFFSETS}
# A broker enqueues timer messages from the offset in this file on. Earlier ones are in the timer
# log, which the new store does not have, so they would never be delivered.
_OF_THE_TIMER = (TIMER_CHECKPOINT_FILE, "timermetrics")
_BACKUP = ".bak"
_MOST_QUEUES = 1024  # of a topic missing from the list; a larger queue id counts as damaged


class ConfigFiles:
    """Copies the configuration of a store to a salvaged one."""

    def __init__(
        self,
        directory: StoreDirectory,
        root: Path,
        queues: Queues,
        kept_queues: Collection[tuple[str, int]],
    ) -> None:
        self.notes: list[str] = []
        self._directory, self._root = directory, root
        self._databases = config_databases(directory)
        self._queues, self._kept = queues, kept_queues
        self._shifted: dict[str, Callable[[dict[Any, Any]], int]] = {
            "consumerOffset.json": self._shift_consumers,
            "lmqConsumerOffset.json": self._shift_light_consumers,
            "delayOffset.json": self._shift_delays,
        }

    def copy(self, now_ms: int, batch_topics: Collection[str]) -> None:
        """Copy and adjust the files; create a list of topics if there is none.

        Raises
        ------
        StoreReadError
            A file cannot be read.
        OSError
            A file cannot be written.
        """
        self._copy_tree(CONFIG_DIR)
        self._write_settings(now_ms)
        for name, shift in self._shifted.items():
            self._adjust(name, shift)
        self._complete_topics(now_ms, batch_topics)

    def _copy_tree(self, *parts: str) -> None:
        path = self._directory.resolve(*parts)
        if self._leads_out("/".join(parts), path):
            return
        for entry in self._directory.list(path):
            below = (*parts, entry.name)
            if entry.is_dir and entry.path in self._databases:
                self._leave_out("/".join(below))
            elif entry.is_dir:
                self._copy_tree(*below)
            elif entry.name.removesuffix(_BACKUP) in _OF_THE_TIMER:
                continue
            elif entry.name.removesuffix(_BACKUP) not in self._shifted:
                self._copy_file("/".join(below), entry.path)

    def _leave_out(self, name: str) -> None:
        made = "its content is in files of the new store"
        if not databases_are_readable():
            made = "it cannot be read here, and is left out"
        self.notes.append(f"{name} is a RocksDB database: {made}")

    def _write_settings(self, now_ms: int) -> None:
        """Write files of topics and groups from databases, in the form that brokers write."""
        for name, table in ((_TOPICS, TOPICS), (_GROUPS, GROUPS)):
            content = content_of_databases(self._directory, name, table)
            if content is not None and content[table.field]:
                content["dataVersion"] = DataVersion(counter=1, timestamp=now_ms).to_json()
                self._write(f"config/{name}", json.dumps(content, indent="\t").encode())

    def _leads_out(self, name: str, path: str) -> bool:
        """Return whether a path leads out of the store, to files that are not its own; note it."""
        if not self._directory.leaves(path):
            return False
        note = f"{name} leads out of the store, to {os.path.realpath(path)}, and is left out"
        if note not in self.notes:
            self.notes.append(note)
        return True

    def _copy_file(self, name: str, path: str) -> None:
        if self._leads_out(name, path):
            return
        try:
            data = self._directory.read_bytes(path)
        except StoreFormatError as err:  # too large to be what a broker writes
            self.notes.append(f"{name} is left out: {err.reason}")
            return
        if data is not None:
            self._write(name, data)

    def _write(self, name: str, data: bytes) -> None:
        path = self._root / name
        make_directory(str(path.parent.absolute()))
        put_file(str(path), data)

    def _adjust(self, name: str, shift: Callable[[dict[Any, Any]], int]) -> None:
        """Write a file of adjusted queue offsets; leave out an unreadable one, with a note."""
        data, was_there = self._read(name)
        if data is None:
            if was_there:
                self.notes.append(f"config/{name} cannot be read and is left out")
            return
        try:
            moved = shift(data)
        except (AttributeError, TypeError, ValueError):
            self.notes.append(f"config/{name} is not what a broker writes and is left out")
            return
        self._write(f"config/{name}", json.dumps(data, indent="\t").encode())
        if moved:
            self.notes.append(
                f"config/{name}: {moved} offsets were moved along with their messages"
            )

    def _read(self, name: str) -> tuple[dict[Any, Any] | None, bool]:
        """Return the content of a file or its ``.bak``, as brokers do; and whether one exists."""
        was_there = False
        if name in _DATABASES:
            content = content_of_databases(self._directory, name, _DATABASES[name])
            if content is not None:
                return content, True
        for candidate in (name, name + _BACKUP):
            path = self._directory.resolve(CONFIG_DIR, candidate)
            if self._leads_out(f"config/{candidate}", path):
                continue
            try:
                data = self._directory.read_bytes(path)
            except StoreFormatError:  # too large to be what a broker writes
                was_there = True
                continue
            if not data or not data.strip():
                continue
            was_there = True
            try:
                value = decode_lenient_json(data)
            except ValueError:
                continue
            if isinstance(value, dict):
                return value, True
        return None, was_there

    def _new_offset(self, topic: str, queue_id: int, offset: int) -> int:
        queue = self._queues.get((topic, queue_id))
        if queue is not None:
            return queue.new_offset(offset)
        return offset if (topic, queue_id) in self._kept else 0

    def _shift_consumers(self, data: dict[Any, Any]) -> int:
        moved = 0
        for key, table in data.get("offsetTable", {}).items():
            topic = str(key).partition("@")[0]
            for queue_id, offset in table.items():
                table[queue_id] = self._new_offset(topic, int(queue_id), int(offset))
                moved += table[queue_id] != offset
        return moved

    def _shift_light_consumers(self, data: dict[Any, Any]) -> int:
        moved, table = 0, data.get("lmqOffsetTable", {})
        for key, offset in table.items():
            table[key] = self._new_offset(str(key).partition("@")[0], 0, int(offset))
            moved += table[key] != offset
        return moved + self._shift_consumers(data)

    def _shift_delays(self, data: dict[Any, Any]) -> int:
        moved, table = 0, data.get("offsetTable", {})
        for level, offset in table.items():
            table[level] = self._new_offset(SCHEDULE_TOPIC, int(level) - 1, int(offset))
            moved += table[level] != offset
        return moved

    def _can_be_loaded(self) -> bool:
        """Return whether the copied list of topics is valid; being JSON is not enough."""
        try:
            return load_topics(StoreDirectory(str(self._root))) is not None
        except StoreFormatError:
            return False

    def _complete_topics(self, now_ms: int, batch_topics: Collection[str]) -> None:
        """Create a list of topics if the old one is lost, so that a broker serves them."""
        data, was_there = self._read(_TOPICS)
        if not self._queues or (data is not None and self._can_be_loaded()):
            return
        if was_there:
            for name in (_TOPICS, _TOPICS + _BACKUP):
                (self._root / CONFIG_DIR / name).unlink(missing_ok=True)
        topics: dict[str, int] = {}
        for topic, queue_id in [*self._queues, *self._kept]:
            if not topic.startswith(LMQ_PREFIX) and queue_id < _MOST_QUEUES:
                topics[topic] = max(topics.get(topic, 0), queue_id + 1)

        def write(path: str, text: bytes) -> None:
            table = json.loads(text)
            for topic in table["topicConfigTable"].keys() & set(batch_topics):
                attributes = {QUEUE_TYPE_ATTRIBUTE: BATCH_QUEUE_TYPE}
                table["topicConfigTable"][topic]["attributes"] = attributes
            put_file(path, json.dumps(table, indent="\t").encode())

        try:
            merge_topics(str(self._root), topics, now_ms, write)
        except StoreFormatError as err:  # not reached: the file is new
            raise OSError(str(err)) from err
        self.notes.append(
            f"config/{_TOPICS} is missing or cannot be read: recreated with the topics of the "
            "messages; check its numbers of queues and permissions"
        )
