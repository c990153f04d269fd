"""The broker's own files below ``config``: topics, consumer offsets, delay offsets, groups."""

from __future__ import annotations

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
from store_core.config.lenient_json import json_object, json_whole_number, parse_lenient_json
from store_core.errors import StoreFormatError
from store_core.layout.message import LMQ_PREFIX
from store_core.layout.store_paths import CONFIG_DIR

if TYPE_CHECKING:
    from collections.abc import Collection

    from store_core.files.store_directory import StoreDirectory

_T = TypeVar("_T")
_LMQ_QUEUE_ID = 0
QUEUE_TYPE_ATTRIBUTE, BATCH_QUEUE_TYPE = "queue.type", "BatchCQ"


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
    """The broker of the set that its members read from."""
    which_broker_when_consume_slowly: int = 1
    """Where members are sent that read what is no more in the master's memory."""
    notify_consumer_ids_changed_enable: bool = True
    """Members hear at once of those that come and go."""
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15


AnyConfig = Union[TopicConfig, SubscriptionGroupConfig]


def load_topics(directory: StoreDirectory) -> dict[str, TopicConfig] | None:
    """Return the topics of ``topics.json``, or of a database, by name; None without any.

    Raises
    ------
    StoreFormatError
        The file is neither empty nor readable, and no ``.bak`` is readable either.
    StoreReadError
        It may not be read. (Both hold for the other functions of this module too.)
    """
    return _load_settings(directory, "topics.json", TOPICS, parse_topic_configs) or None


def load_consumer_offsets(directory: StoreDirectory) -> dict[tuple[str, str], dict[int, int]]:
    """Return the next queue offset by queue id, by (group, topic).

    Of ``consumerOffset.json`` or a database and, for light queues, of ``lmqConsumerOffset.json``.
    A group named ``group@broadcast`` is what a 5.x broker notes beside a broadcasting group's own
    offsets.
    """
    name, light = "consumerOffset.json", "lmqConsumerOffset.json"
    found = _load_settings(directory, name, CONSUMER_OFFSETS, parse_consumer_offsets) or {}
    return {**found, **(load_config_file(directory, light, parse_consumer_offsets) or {})}


def load_delay_offsets(directory: StoreDirectory) -> dict[int, int] | None:
    """Return the next queue offset to deliver by delay level, which counts from 1."""
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
) -> _T | None:
    content = content_of_databases(directory, name, table)
    return load_config_file(directory, name, convert) if content is None else convert(content)


def content_of_databases(
    directory: StoreDirectory, name: str, table: ConfigTable
) -> dict[str, Any] | None:
    """Return what a database holds of settings, as their file would have it.

    None where there is no database, or the file is newer: a broker takes the file then.
    """
    stored = settings_of_databases(directory, table)
    if stored is None:
        return None
    try:
        version = load_config_file(directory, name, _version_of_file)
    except StoreFormatError:  # the database is whole
        version = None
    is_file_newer = version is not None and version.counter > stored.version.counter
    return None if is_file_newer else stored.content


def _version_of_file(data: dict[str, Any]) -> DataVersion:
    return parse_data_version(data.get("dataVersion"))


def is_deleted_topic(topic: str, topics: Collection[str] | None) -> bool:
    """Return whether a topic that has records, and maybe no queues, was deleted.

    Parameters
    ----------
    topic
        As its records have it.
    topics
        Those that ``topics.json`` names; None or empty: nobody knows.
    """
    if not topics:
        return False
    return topic not in topics and not topic.startswith(LMQ_PREFIX)


def load_config_file(
    directory: StoreDirectory, name: str, convert: Callable[[dict[str, Any]], _T]
) -> _T | None:
    """Read a file, or its ``.bak`` where it is missing, empty or unreadable (``ConfigManager``)."""
    found = find_config_file(directory, name, convert)
    return None if found is None else found[0]


def find_config_file(
    directory: StoreDirectory, name: str, convert: Callable[[dict[str, Any]], _T]
) -> tuple[_T, bool] | None:
    """Do as `load_config_file`; return also whether the file itself was readable."""
    return find_json_file(directory, directory.resolve(CONFIG_DIR, name), convert)


def find_json_file(
    directory: StoreDirectory, path: str, convert: Callable[[dict[str, Any]], _T]
) -> tuple[_T, bool] | None:
    """Do as `find_config_file` for a file at any place."""
    failure: StoreFormatError | None = None
    for candidate in (path, path + ".bak"):
        try:
            data = directory.read_bytes(candidate)
            if not data or not data.strip():
                continue
            value = parse_lenient_json(data.decode())
            if not isinstance(value, dict):
                raise ValueError("not an object")  # noqa: TRY004 (one kind of failure)
            return convert(value), candidate == path
        except ValueError as err:
            if failure is None and candidate == path:
                failure = StoreFormatError(f"not what a broker writes: {err}", candidate)
        except StoreFormatError as err:  # its size alone says that it is none
            failure = failure or err
    if failure is not None:
        raise failure
    return None


def parse_topic_configs(data: dict[str, Any]) -> dict[str, TopicConfig]:
    """Return the topics of field ``topicConfigTable``; ValueError names what is wrong."""
    return {
        topic: parse_topic_config(topic, item) for topic, item in _objects(data, "topicConfigTable")
    }


def parse_topic_config(topic: str, item: dict[str, Any]) -> TopicConfig:
    """Return one topic of its JSON object; what it does not say has the default."""
    return TopicConfig(topic, **_values(TopicConfig(""), item))


def parse_group_configs(data: dict[str, Any]) -> dict[str, SubscriptionGroupConfig]:
    """Return the groups of field ``subscriptionGroupTable``; ValueError names what is wrong."""
    return {
        group: parse_group_config(group, item)
        for group, item in _objects(data, "subscriptionGroupTable")
    }


def parse_group_config(group: str, item: dict[str, Any]) -> SubscriptionGroupConfig:
    """Return one group of its JSON object; what it does not say has the default."""
    return SubscriptionGroupConfig(group, **_values(SubscriptionGroupConfig(""), item))


def config_json(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as brokers write them, by RocketMQ's names.

    Of a topic, of a group, or of any other that is declared with RocketMQ's names in snake_case.
    """
    return {name: getattr(config, field) for field, name in sorted(_names(config))}


def _names(config: Any) -> list[tuple[str, str]]:
    return [(each.name, camel_case(each.name)) for each in fields(config)]


def _values(default: AnyConfig, item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON object, but for the first, which is the name."""
    values: dict[str, Any] = {}
    for field_name, name in _names(default)[1:]:
        standard = getattr(default, field_name)
        if isinstance(standard, dict):
            values[field_name] = _attributes(item)
        elif isinstance(standard, bool):
            values[field_name] = _bool(item, name, default=standard)
        elif isinstance(standard, int):
            values[field_name] = _int(item, name, standard)
        else:
            values[field_name] = str(item.get(name, standard))
    return values


def parse_delay_offsets(data: dict[str, Any]) -> dict[int, int]:
    """Return what `load_delay_offsets` does of a file, or of a broker's answer."""
    return _int_map(data.get("offsetTable"), "offsetTable")


def parse_consumer_offsets(data: dict[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    """Return what `load_consumer_offsets` does of one file, or of a broker's answer."""
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for key, table in json_object(data.get("offsetTable"), "offsetTable").items():
        offsets[_group_and_topic(key)] = _int_map(table, f"offsetTable.{key}")
    lmq = "lmqOffsetTable"
    for key, offset in _int_map(data.get(lmq), lmq, str).items():
        offsets[_group_and_topic(key)] = {_LMQ_QUEUE_ID: offset}
    return offsets


def _group_and_topic(key: Any) -> tuple[str, str]:
    # Written topic@group. No topic holds "@" (TopicValidator); groups do: what a 5.x broker notes
    # for a broadcasting group is kept as group@broadcast (BroadcastOffsetManager).
    topic, separator, group = str(key).partition("@")
    if not separator:
        raise ValueError(f"{key!r} is not topic@group")
    return group, topic


def _objects(data: dict[str, Any], table: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(name), json_object(item, f"{table}.{name}"))
        for name, item in json_object(data.get(table), table).items()
    ]


def _attributes(item: dict[str, Any]) -> dict[str, str]:
    attributes = json_object(item.get("attributes"), "attributes")
    return {str(name): str(value) for name, value in attributes.items()}


def _int_map(value: Any, name: str, key_type: Callable[[Any], Any] = int) -> dict[Any, int]:
    return {
        key_type(key): json_whole_number(number, f"{name}.{key}")
        for key, number in json_object(value, name).items()
    }


def _int(item: dict[str, Any], key: str, default: int) -> int:
    return json_whole_number(item[key], key) if key in item else default


def _bool(item: dict[str, Any], key: str, *, default: bool) -> bool:
    value = item.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key}: true or false was expected, not {value!r:.80}")  # noqa: TRY004
    return value
