# SPDX-License-Identifier: Apache-2.0
"""Topics, consumer offsets and groups that a broker stores in RocksDB databases.

Version 1 has a database for each of them below ``config``, or, from 5.4 on with
``useSingleRocksDBForAllConfigs``, a single one with column families for each; version 2 has one
for all (``configManagerVersion``). Source: RocketMQ ``RocksDBTopicConfigManager``,
``RocksDBConsumerOffsetManager`` (5.3.3, 5.5.1), ``TopicConfigManagerV2``,
``ConsumerOffsetManagerV2`` (5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from store_core.config.data_version import DataVersion, parse_data_version
from store_core.config.lenient_json import decode_lenient_json, json_object
from store_core.database.read_only_database import (
    ReadOnlyDatabase,
    database_path,
    databases_are_readable,
)
from store_core.database.rocksdb_layout import (
    CONSUMER_OFFSET,
    CONSUMER_OFFSET_TABLE,
    DEFAULT_FAMILY,
    GROUP_TABLE,
    JSON_SERIALIZATION,
    TOPIC_TABLE,
    VERSION_FAMILY,
    VERSION_KEY,
    name_of_key,
    offset_key_parts,
    table_prefix,
)
from store_core.errors import StoreFormatError
from store_core.layout import CONFIG_DIR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.files.store_directory import StoreDirectory

_VERSION_2_DIR = "rdb"
_SINGLE_DIR = "metadata"


class ConfigTable(NamedTuple):
    """One kind of settings: its place in each kind of database, and its JSON field.

    ``database`` is for version 1, ``family`` for the single database, ``table`` for version 2.
    """

    database: str
    family: str
    table: int
    field: str

    @property
    def version_family(self) -> str:
        """The column family of the data version in the single database."""
        return f"{self.family}Version"


TOPICS = ConfigTable("topics", "topic", TOPIC_TABLE, "topicConfigTable")
GROUPS = ConfigTable(
    "subscriptionGroups", "subscriptionGroup", GROUP_TABLE, "subscriptionGroupTable"
)
CONSUMER_OFFSETS = ConfigTable(
    "consumerOffsets", "consumerOffset", CONSUMER_OFFSET_TABLE, "offsetTable"
)


class StoredSettings(NamedTuple):
    """Settings in the form of their JSON file, and their version."""

    content: dict[str, Any]
    version: DataVersion


def config_databases(directory: StoreDirectory) -> tuple[str, ...]:
    """Return the paths of a store's databases of settings."""
    names = [table.database for table in (TOPICS, GROUPS, CONSUMER_OFFSETS)]
    found = (
        database_path(directory, CONFIG_DIR, name) for name in (*names, _SINGLE_DIR, _VERSION_2_DIR)
    )
    return tuple(sorted(path for path in found if path))


def settings_of_databases(directory: StoreDirectory, table: ConfigTable) -> StoredSettings | None:
    """Return one kind of settings from a database; None without one, or without a library for it.

    If the single database and one for this kind both exist, the newer one counts: a broker copies
    the settings of the other one.

    Raises
    ------
    StoreFormatError
        A database cannot be opened, or has content that a broker does not write.
    StoreReadError
        A file cannot be read.
    """
    if not databases_are_readable():
        return None
    readers = (
        (_VERSION_2_DIR, _of_version_2),
        (_SINGLE_DIR, _of_single),
        (table.database, _of_version_1),
    )
    found = [_read(directory, name, read, table) for name, read in readers]
    return max((each for each in found if each), key=lambda each: each.version, default=None)


def _read(
    directory: StoreDirectory,
    name: str,
    read: Callable[[ReadOnlyDatabase, ConfigTable], StoredSettings | None],
    table: ConfigTable,
) -> StoredSettings | None:
    path = database_path(directory, CONFIG_DIR, name)
    if not path:
        return None
    database = ReadOnlyDatabase(directory, path)
    try:
        return read(database, table)
    except ValueError as err:
        raise StoreFormatError(f"not what a broker writes: {err}", path) from err
    finally:
        database.close()


def _of_version_1(database: ReadOnlyDatabase, table: ConfigTable) -> StoredSettings:
    return _of_families(database, table, DEFAULT_FAMILY, VERSION_FAMILY)


def _of_single(database: ReadOnlyDatabase, table: ConfigTable) -> StoredSettings | None:
    if not database.has_family(table.family):
        return None
    return _of_families(database, table, table.family, table.version_family)


def _of_families(
    database: ReadOnlyDatabase, table: ConfigTable, family: str, version_family: str
) -> StoredSettings:
    content: dict[str, Any] = {}
    for key, value in database.items(family):
        item = _json(value)
        content[_text(key)] = item.get(table.field) if table is CONSUMER_OFFSETS else item
    version = None
    if database.has_family(version_family):
        version = database.get(version_family, VERSION_KEY)
    return StoredSettings(
        {table.field: content},
        parse_data_version(_json(version)) if version else DataVersion(),
    )


def _of_version_2(database: ReadOnlyDatabase, table: ConfigTable) -> StoredSettings:
    items = database.items(DEFAULT_FAMILY, table_prefix(table.table))
    content = dict(_offsets(items) if table is CONSUMER_OFFSETS else _configs(items))
    return StoredSettings(
        {table.field: content}, DataVersion(state_version=_ALWAYS, counter=_ALWAYS)
    )


_ALWAYS = 2**63 - 1
"""Brokers with databases of version 2 do not read JSON files."""


def _configs(items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[str, Any]]:
    for key, value in items:
        if value[:1] != bytes([JSON_SERIALIZATION]):
            raise ValueError(f"{key!r} is not stored as JSON")
        yield _text(name_of_key(key)), _json(value[1:])


def _offsets(items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[str, Any]]:
    found: dict[str, dict[int, int]] = {}
    for key, value in items:
        group, topic, queue_id = offset_key_parts(key)
        if len(value) != CONSUMER_OFFSET.size:
            raise ValueError(f"the offset of {key!r} has {len(value)} bytes")
        offsets = found.setdefault(f"{_text(topic)}@{_text(group)}", {})
        offsets[queue_id] = int(CONSUMER_OFFSET.unpack(value).value)
    yield from found.items()


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _json(data: bytes) -> dict[Any, Any]:
    return json_object(decode_lenient_json(data), "a value")
