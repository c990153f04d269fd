# SPDX-License-Identifier: Apache-2.0
"""The broker's own files below ``config``: topics, consumer offsets, delay offsets, groups."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Callable, TypeVar, Union

from store_core.config.config_checks import camel_case
from store_core.config.config_database import (
    CONSUMER_OFFSETS,
    GROUPS,
    TOPICS,
    ConfigTable,
    settings_of_databases,
)
from store_core.config.data_version import DataVersion, parse_data_version
from store_core.config.lenient_json import (
    decode_lenient_json,
    fastjson_text,
    is_unset,
    json_field,
    json_flag_or_default,
    json_number_or_default,
    json_object,
    json_whole_number,
)
from store_core.errors import StoreError, StoreFormatError, StorePermissionError
from store_core.layout import CONFIG_DIR, LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection

    from store_core.files.store_directory import StoreDirectory

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_LMQ_QUEUE_ID = 0
_INT_BITS = 32
_LONGS = frozenset({"broker_id", "which_broker_when_consume_slowly"})
_TYPE = "@type"  # of a Java class; fastjson skips it in a map
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
QUEUE_TYPE_ATTRIBUTE, BATCH_QUEUE_TYPE = "queue.type", "BatchCQ"
_STATIC_TOPICS_FILE, _TABLE = "topicQueueMapping.json", "topicQueueMappingInfoMap"
_NAMED = 5


@dataclass(frozen=True)
class TopicConfig:
    """Settings of a topic (RocketMQ ``TopicConfig``, release 5.3.3)."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    """Bits: 1 inherit, 2 write, 4 read, 8 priority."""
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    """``queue.type``, ``cleanup.policy``, ``message.type``, …; 5.x."""

    @property
    def has_batch_queues(self) -> bool:
        """Whether the topic's queues are batch consume queues (``QueueTypeUtils.isBatchCq``)."""
        return self.attributes.get(QUEUE_TYPE_ATTRIBUTE) == BATCH_QUEUE_TYPE


@dataclass(frozen=True)
class SubscriptionGroupConfig:
    """Settings of a consumer group (``SubscriptionGroupConfig``)."""

    group_name: str
    consume_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    attributes: dict[str, str] = field(default_factory=dict)
    consume_from_min_enable: bool = True
    broker_id: int = 0
    """Id of the broker from which its members read."""
    which_broker_when_consume_slowly: int = 1
    """Id of the broker for members that read messages no longer in the master's memory."""
    notify_consumer_ids_changed_enable: bool = True
    """Notify members immediately when others come or go."""
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15


AnyConfig = Union[TopicConfig, SubscriptionGroupConfig]


def load_topics(directory: StoreDirectory) -> dict[str, TopicConfig] | None:
    """Return the topics of ``topics.json``, or of a database, by name; None if there are none.

    A file that cannot be read counts as missing, with a warning, for all functions of this module
    whose names begin with ``load``.

    Raises
    ------
    StoreReadError
        The store cannot be read.
    """
    return _load_settings(directory, "topics.json", TOPICS, parse_topic_configs) or None


def load_consumer_offsets(
    directory: StoreDirectory, *, is_needed: bool = False
) -> dict[tuple[str, str], dict[int, int]]:
    """Return (group, topic) -> queue id -> next queue offset.

    They come from ``consumerOffset.json`` or a database and, for light queues, from
    ``lmqConsumerOffset.json``. A 5.x broker records offsets of a broadcasting group also under the
    name ``group@broadcast``.

    Raises
    ------
    StoreFormatError, StorePermissionError
        A file cannot be read; only with ``is_needed``.
    """
    parse = parse_consumer_offsets
    found = _load_settings(
        directory, "consumerOffset.json", CONSUMER_OFFSETS, parse, is_needed=is_needed
    )
    light = load_config_file(directory, "lmqConsumerOffset.json", parse, is_needed=is_needed)
    return {**(found or {}), **(light or {})}


def load_delay_offsets(directory: StoreDirectory) -> dict[int, int] | None:
    """Return delay level (from 1) -> next queue offset to deliver."""
    return load_config_file(directory, "delayOffset.json", parse_delay_offsets)


def load_subscription_groups(
    directory: StoreDirectory,
) -> dict[str, SubscriptionGroupConfig] | None:
    """Return the consumer groups of ``subscriptionGroup.json``, or of a database, by name."""
    return _load_settings(directory, "subscriptionGroup.json", GROUPS, parse_group_configs)


def _load_settings(
    directory: StoreDirectory,
    name: str,
    table: ConfigTable,
    convert: Callable[[dict[str, Any]], _T],
    *,
    is_needed: bool = False,
) -> _T | None:
    try:
        content = content_of_databases(directory, name, table)
        if content is not None:
            return convert(content)
    except (StoreFormatError, ValueError) as err:
        _warn_unread(err)
    return load_config_file(directory, name, convert, is_needed=is_needed)


def content_of_databases(
    directory: StoreDirectory, name: str, table: ConfigTable
) -> dict[str, Any] | None:
    """Return the settings in a database, in the form of their file.

    None if there is no database, or the file is newer: then a broker uses the file.
    """
    stored = settings_of_databases(directory, table)
    if stored is None:
        return None
    try:
        found = find_config_file(directory, name, _version_of_file)
    except (StoreFormatError, StorePermissionError):  # the database is intact
        found = None
    is_file_newer = found is not None and found[0].counter > stored.version.counter
    return None if is_file_newer else stored.content


def _version_of_file(data: dict[str, Any]) -> DataVersion:
    return parse_data_version(json_field(data, "dataVersion"))


def is_deleted_topic(topic: str, topics: Collection[str] | None) -> bool:
    """Return whether a topic that has records, and maybe no queues, was deleted.

    Parameters
    ----------
    topics
        The topics in ``topics.json``; if None or empty, no topic counts as deleted.
    """
    if not topics:
        return False
    return topic not in topics and not topic.startswith(LMQ_PREFIX)


def load_config_file(
    directory: StoreDirectory,
    name: str,
    convert: Callable[[dict[str, Any]], _T],
    *,
    is_needed: bool = False,
) -> _T | None:
    """Read a file, or its ``.bak`` if it is missing, empty or unreadable (``ConfigManager``).

    None if both are missing. If neither can be read: an error with ``is_needed``, else a warning
    and None.
    """
    try:
        found = find_config_file(directory, name, convert)
    except (StoreFormatError, StorePermissionError) as err:
        if is_needed:
            raise
        _warn_unread(err)
        return None
    return None if found is None else found[0]


def _warn_unread(err: Exception) -> None:
    logger.warning("%s; it is treated as missing here", err)


def find_config_file(
    directory: StoreDirectory, name: str, convert: Callable[[dict[str, Any]], _T]
) -> tuple[_T, bool] | None:
    """Do as `load_config_file`; return also whether the file itself was readable.

    Raises
    ------
    StoreFormatError, StorePermissionError
        Neither the file nor its ``.bak`` can be read, and one of them is not empty.
    """
    return find_json_file(directory, directory.resolve(CONFIG_DIR, name), convert)


def find_json_file(
    directory: StoreDirectory, path: str, convert: Callable[[dict[str, Any]], _T]
) -> tuple[_T, bool] | None:
    """Do as `find_config_file` for a file at any path."""
    failure: StoreError | None = None
    for candidate in (path, path + ".bak"):
        try:
            data = read_json_file(directory, candidate)
            if data is not None:
                return _converted(convert, data, candidate), candidate == path
        except (StoreFormatError, StorePermissionError) as err:
            failure = failure or err
    if failure is not None:
        raise failure
    return None


def read_json_file(directory: StoreDirectory, path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None if the file is missing or empty.

    Raises
    ------
    StoreFormatError
        It contains something else, or is far too large.
    """
    data = directory.read_bytes(path)
    if not data or not data.strip():
        return None

    def as_object(value: Any) -> dict[str, Any]:
        return json_object(value, "the file")

    return _converted(as_object, data, path, decode=decode_lenient_json)


def _converted(
    convert: Callable[[Any], _T], data: Any, path: str, decode: Callable[[Any], Any] | None = None
) -> _T:
    try:
        return convert(data if decode is None else decode(data))
    except ValueError as err:
        raise StoreFormatError(f"not what a broker writes: {err}", path) from err


def parse_topic_configs(data: dict[str, Any]) -> dict[str, TopicConfig]:
    """Return the topics of field ``topicConfigTable``; ValueError names what is wrong."""
    table = "topicConfigTable"
    return {
        topic: TopicConfig(topic, **_values(TopicConfig(""), item, f"{table}.{topic}."))
        for topic, item in entries_of(data, table)
    }


def parse_topic_config(topic: str, item: dict[str, Any]) -> TopicConfig:
    """Return a topic from its JSON object; missing fields have their defaults."""
    return TopicConfig(topic, **_values(TopicConfig(""), item))


def parse_group_configs(data: dict[str, Any]) -> dict[str, SubscriptionGroupConfig]:
    """Return the groups of field ``subscriptionGroupTable``; ValueError names what is wrong."""
    table, standard = "subscriptionGroupTable", SubscriptionGroupConfig("")
    return {
        group: SubscriptionGroupConfig(group, **_values(standard, item, f"{table}.{group}."))
        for group, item in entries_of(data, table)
    }


def parse_group_config(group: str, item: dict[str, Any]) -> SubscriptionGroupConfig:
    """Return a group from its JSON object; missing fields have their defaults."""
    return SubscriptionGroupConfig(group, **_values(SubscriptionGroupConfig(""), item))


def config_json(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as brokers write them, by RocketMQ's names.

    For a topic, a group, or any other dataclass whose fields are RocketMQ's names in snake_case.
    """
    return {name: getattr(config, field) for field, name in sorted(_names(config))}


def _names(config: Any) -> list[tuple[str, str]]:
    return [(each.name, camel_case(each.name)) for each in fields(config)]


def _values(default: AnyConfig, item: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Return the fields of a JSON object, except the first, which is the name."""
    values: dict[str, Any] = {}
    for field_name, key in _names(default)[1:]:
        standard = getattr(default, field_name)
        value, name = json_field(item, key), place + key
        if isinstance(standard, dict):
            values[field_name] = _attributes(value, name)
        elif isinstance(standard, bool):
            values[field_name] = json_flag_or_default(value, name, default=standard)
        elif isinstance(standard, int):
            bits = 64 if field_name in _LONGS else _INT_BITS
            values[field_name] = json_number_or_default(value, name, standard, bits)
        else:
            values[field_name] = _filter_type(value, name, standard)
    return values


def _filter_type(value: Any, name: str, default: str) -> str:
    """Return a topic's filter type (one tag or several) from its name or its number."""
    if is_unset(value):
        return default
    if isinstance(value, (int, float)) and 0 <= value < len(_FILTER_TYPES):
        return _FILTER_TYPES[int(value)]
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004 (one kind of failure)
            f"{name}: expected one of {', '.join(_FILTER_TYPES)}, not {value!r:.80}"
        )
    return value.upper() if value.upper() in _FILTER_TYPES else default


def parse_delay_offsets(data: dict[str, Any]) -> dict[int, int]:
    """Return a file's content, or a broker's answer, in the form of `load_delay_offsets`."""
    return _int_map(json_field(data, "offsetTable"), "offsetTable")


def parse_consumer_offsets(data: dict[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    """Return a file's content, or a broker's answer, in the form of `load_consumer_offsets`.

    Keys that are not ``topic@group`` are skipped, as brokers do.
    """
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for key, table in entries_of(data, "offsetTable"):
        queues = _int_map(table, f"offsetTable.{key}")
        if place := _group_and_topic(key):
            offsets[place] = queues
    lmq = "lmqOffsetTable"
    for key, offset in _table(json_field(data, lmq), lmq).items():
        next_offset = json_whole_number(offset, f"{lmq}.{key}")
        if place := _group_and_topic(str(key)):
            offsets[place] = {_LMQ_QUEUE_ID: next_offset}
    return offsets


def offsets_without_group(data: dict[str, Any]) -> dict[str, dict[int, int]]:
    """Return the offsets under keys that are not ``topic@group``, which brokers preserve."""
    return {
        key: _int_map(table, f"offsetTable.{key}")
        for key, table in entries_of(data, "offsetTable")
        if _group_and_topic(key) is None
    }


def _group_and_topic(key: str) -> tuple[str, str] | None:
    # Written topic@group. No topic contains "@" (TopicValidator); groups may: a 5.x broker stores
    # offsets of a broadcasting group as group@broadcast (BroadcastOffsetManager).
    topic, _, group = key.partition("@")
    return (group, topic) if topic and group else None


def entries_of(data: dict[str, Any], table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries of a table; ValueError for a ``null`` entry, which fastjson refuses."""
    found = []
    for key, item in _table(json_field(data, table), table).items():
        if item is None:
            raise ValueError(f"{table}.{key}: an object was expected, not null")
        if key != _TYPE:
            found.append((str(key), json_object(item, f"{table}.{key}")))
    return found


def _table(value: Any, name: str) -> dict[Any, Any]:
    return json_object(None if is_unset(value) else value, name)


def _attributes(value: Any, name: str) -> dict[str, str]:
    attributes = _table(value, name)
    return {str(key): fastjson_text(each) for key, each in attributes.items() if each is not None}


def _int_map(value: Any, name: str) -> dict[int, int]:
    return {
        json_whole_number(key, name, _INT_BITS): json_whole_number(number, f"{name}.{key}")
        for key, number in _table(value, name).items()
        if key != _TYPE
    }


# Source: RocketMQ ``TopicQueueMappingManager``, ``TopicQueueMappingDetail`` (release 5.3.3).
def static_topics(directory: StoreDirectory) -> tuple[str, ...]:
    """Return the names of a store's static topics; a 5.x broker writes the file without any, too.

    Raises
    ------
    StoreReadError
        The file cannot be read.
    """
    return load_config_file(directory, _STATIC_TOPICS_FILE, _static_names) or ()


def static_topics_note(topics: tuple[str, ...]) -> str:
    """Return a note for readers of offsets; empty without static topics."""
    if not topics:
        return ""
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    names = ", ".join(topics[:_NAMED])
    return (
        f"static topics ({names}{more}): consumers see logical offsets "
        f"(config/{_STATIC_TOPICS_FILE}); the offsets here are physical ones, in this broker's "
        "own queues"
    )


def warn_of_static_topics(directory: StoreDirectory) -> None:
    """Warn, if there are static topics, that their offsets are not those that consumers see."""
    note = static_topics_note(static_topics(directory))
    if note:
        logger.warning("%s", note)


def _static_names(data: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(map(str, json_object(data.get(_TABLE) or {}, _TABLE))))
