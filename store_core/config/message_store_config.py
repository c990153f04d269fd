# SPDX-License-Identifier: Apache-2.0
"""Settings of a store, by RocketMQ's keys in snake_case."""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from store_core.config.broker_config import has_byte_order_mark, read_properties
from store_core.config.config_checks import (
    INT_MAX,
    Settings,
    parse_delay_levels,
    parse_hours,
    shortened,
)
from store_core.config.rocketmq_keys import BROKER_KEYS, STORE_KEYS, java_type
from store_core.errors import StoreConfigError
from store_core.files.store_directory import local_path
from store_core.layout import BATCH_CQ_UNIT, CQ_UNIT, TIMER_BLANK_SLOTS, TIMER_SLOTS_TOTAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

logger = logging.getLogger(__name__)

__all__ = [
    "DEFAULT_MAX_HASH_SLOT_NUM",
    "DEFAULT_MAX_INDEX_NUM",
    "DEFAULT_SIZES",
    "KEYS",
    "MessageStoreConfig",
    "config_key_names",
    "load_broker_config",
    "with_default_sizes",
]

DEFAULT_MAX_HASH_SLOT_NUM = 5_000_000
DEFAULT_MAX_INDEX_NUM = 20_000_000
SYNC_FLUSH = "SYNC_FLUSH"
DEFAULT_SIZES: dict[str, int] = {
    "mapped_file_size_commit_log": 1 << 30,
    "mapped_file_size_consume_queue": 300_000 * CQ_UNIT.size,
    "mapper_file_size_batch_consume_queue": 300_000 * BATCH_CQ_UNIT.size,
    "mapped_file_size_consume_queue_ext": 48 << 20,
    "max_hash_slot_num": DEFAULT_MAX_HASH_SLOT_NUM,
    "max_index_num": DEFAULT_MAX_INDEX_NUM,
}
_OLD_SPELLINGS = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Keys of releases up to 4.5.1 -> the newer ones."""
_JAVA_BITS = {"int": 32, "long": 64}
_JAVA_BLANKS = "".join(map(chr, range(33)))
_JAVA_NUMBER = re.compile(r"[+-]?\d{1,100}")
_JAVA_DOUBLE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?|[+-]?(NaN|Infinity)")
SYNC_MASTER = "SYNC_MASTER"
SLAVE = "SLAVE"
_CHOICES = {
    "flush_disk_type": ("ASYNC_FLUSH", SYNC_FLUSH),
    "broker_role": ("ASYNC_MASTER", SYNC_MASTER, SLAVE),
}
_LEAST_ROLL_STEPS = 2
_PERCENT = (1, 100)
_FROM_ZERO = (0, INT_MAX)
_BOUNDS = {
    "access_message_in_memory_max_ratio": _PERCENT,
    "disk_max_used_space_ratio": _PERCENT,
    "disk_space_warning_level_ratio": _PERCENT,
    "disk_space_clean_forcibly_ratio": _PERCENT,
    "max_topic_length": (1, 255),
    "file_reserved_time": _FROM_ZERO,
    "max_error_rate_of_bloom_filter": (1, 99),
    "expect_consumer_num_use_filter": (1, 25_000),  # at 1 %, all that a unit fits
    "os_page_cache_busy_time_out_mills": (0, 2**63 - 1),
    "transaction_op_format": (4, 5),
    "ha_listen_port": (0, 65_535),
    "max_ha_transfer_byte_in_second": (1, 2**63 - 1),
    "filter_data_clean_time_span": (0, 2**63 - 1),
    **dict.fromkeys(
        (
            "flush_commit_log_least_pages",
            "flush_commit_log_thorough_interval",
            "commit_commit_log_least_pages",
            "commit_commit_log_thorough_interval",
            "flush_consume_queue_least_pages",
            "flush_consume_queue_thorough_interval",
            "delete_commit_log_files_interval",
            "delete_consume_queue_files_interval",
            "destroy_maped_file_interval_forcibly",
            "redelete_hanged_file_interval",
            "correct_logic_min_offset_force_interval",
        ),
        _FROM_ZERO,
    ),
}


_LOG_DIRECTORIES = (
    *("store_path_commit_log", "read_only_commit_log_store_paths"),
    "store_path_d_ledger_commit_log",
)


@dataclass(frozen=True)
class MessageStoreConfig:
    """Settings of a store (RocketMQ ``MessageStoreConfig``, release 5.3.3).

    Defaults are RocketMQ's, except that file sizes are None, so that the files show them; see
    `with_default_sizes`. Numbers are positive and fit a Java int, unless RocketMQ takes others.
    Times are in ms unless stated otherwise. Directories are texts, paths of ``pathlib``, which
    become texts, or ``file:`` URIs, which become paths.

    Raises
    ------
    StoreConfigError
        A value is out of bounds; the text names RocketMQ's key.
    """

    store_path_root_dir: str = ""
    store_path_commit_log: str | None = None
    """Directories of the commit log, separated by commas; if None, ``commitlog`` below the root."""
    read_only_commit_log_store_paths: str | None = None
    """More directories of the commit log, which get no new files."""
    store_path_d_ledger_commit_log: str | None = None
    """Directories of a DLedger log; if None, ``dledger-<dLegerSelfId>/data`` below the root."""
    d_leger_self_id: str | None = None
    """The node of a DLedger group that owns the store (the spelling is RocketMQ's)."""
    d_leger_peers: str | None = None
    """The nodes of a DLedger group, separated by ``;``."""
    mapped_file_size_commit_log: int | None = None
    """Bytes of a commit log segment."""
    mapped_file_size_consume_queue: int | None = None
    """Bytes of a consume queue file; rounded up to whole units of 20 bytes."""
    mapper_file_size_batch_consume_queue: int | None = None
    """Bytes of a batch consume queue file (the spelling is RocketMQ's)."""
    mapped_file_size_consume_queue_ext: int | None = None
    """Bytes of a consume queue extension file."""
    max_hash_slot_num: int | None = None
    """Hash slots of an index file."""
    max_index_num: int | None = None
    """Entries of an index file, the unused first one included."""
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    """Delay of level 1, 2, …: numbers with unit s, m, h or d, separated by single spaces."""
    max_msgs_num_batch: int = 64
    """Most messages that one index query returns."""
    default_query_max_num: int = 32
    """Most messages that a query by unique key returns."""
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 65_536
    max_transfer_count_on_message_in_disk: int = 8
    max_filter_message_size: int = 16_000
    """Bytes of queue units that one ``get_message`` inspects."""
    access_message_in_memory_max_ratio: int = 40
    """Percent of the memory that the newest messages are assumed to occupy."""
    travel_cq_file_num_when_get_message: int = 1
    """Consume queue files that one ``get_message`` reads."""

    max_message_size: int = 4_194_304
    """Bytes of a body; a whole record may have 64 KiB more."""
    max_topic_length: int = 127
    """Most bytes of a topic that is not a retry topic; at most 255, the limit of retry topics."""
    auto_message_version_on_topic_len: bool = True
    """Write topics of more than 127 bytes in records of version 2 (5.1.0 on), or refuse them."""
    enabled_append_prop_crc: bool = False
    """End every record with property ``__CRC32#`` (5.2.0 on)."""
    check_crc_on_recover: bool = True
    topic_queue_lock_num: int = 32
    """Locks over which the queues are spread, so that several threads can put in parallel."""
    os_page_cache_busy_time_out_mills: int = 1000
    """A put is refused while another thread holds the append lock for longer."""
    enable_lmq: bool = False
    """Number the messages of light queues when they are put."""
    enable_multi_dispatch: bool = False
    """Index messages in the light queues that their properties name."""
    broker_role: str = "ASYNC_MASTER"
    duplication_enable: bool = False

    ha_listen_port: int = 10912
    """Port for slaves; any free one if 0."""
    ha_send_heartbeat_interval: int = 5000
    """Master and slave send something at least this often."""
    ha_housekeeping_interval: int = 20_000
    """A connection that received nothing for longer is closed."""
    ha_transfer_batch_size: int = 32_768
    """Most bytes of the log in one frame; no frame has more than 1 MiB."""
    ha_max_gap_not_in_sync: int = 268_435_456
    """A slave that lacks fewer bytes counts as in sync."""
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 104_857_600
    """Bytes that a slave gets in a second with ``haFlowControlEnable``."""
    in_sync_replicas: int = 1
    """Stores, the master included, that need a message before a ``SYNC_MASTER`` confirms it."""
    slave_timeout: int = 3000
    """How long a put waits for these stores."""

    flush_disk_type: str = "ASYNC_FLUSH"
    """``SYNC_FLUSH``: a put returns when its record is on the disk."""
    sync_flush_timeout: int = 5000
    flush_interval_commit_log: int = 500
    flush_commit_log_timed: bool = True
    """Sleep for the whole interval, even when woken."""
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    """How often fewer pages than the least are flushed, too."""
    transient_store_pool_enable: bool = False
    """Collect appended records in memory; a separate thread commits them to the file."""
    transient_store_pool_size: int = 5
    """Buffers, each of the size of a segment."""
    commit_interval_commit_log: int = 200
    commit_commit_log_least_pages: int = 4
    commit_commit_log_thorough_interval: int = 200
    wake_commit_when_put_message: bool = True
    wake_flush_when_put_message: bool = False
    flush_interval_consume_queue: int = 1000
    flush_delay_offset_interval: int = 10_000
    """Pause between two saves of ``config/delayOffset.json``, ms."""
    flush_consume_queue_least_pages: int = 2
    """A queue is flushed once so many pages of 4 KiB wait; with 0, whenever queues are flushed."""
    flush_consume_queue_thorough_interval: int = 60_000
    warm_maped_file_enable: bool = False
    """Write to every page of a segment before it is used."""
    flush_least_pages_when_warm_maped_file: int = 4096

    read_un_committed: bool = False
    """Dispatch messages that are not yet confirmed, too."""
    message_index_enable: bool = True
    tag_index_enable: bool | None = None
    """Index tags too, as brokers from 5.4.0 on always do; if None, as the store's files show.
    RocketMQ has no such key."""
    enable_accelerated_recovery: bool = False
    """Write the checkpoint field that accelerated recovery by brokers from 5.5.0 on needs."""
    enable_consume_queue_ext: bool = False
    enable_calc_filter_bit_map: bool = False
    """Write bitmaps of the consumers that want a message into extension units."""
    expect_consumer_num_use_filter: int = 32
    """Consumers of a topic for which the bitmaps are sized; more make them longer."""
    max_error_rate_of_bloom_filter: int = 20
    """Percent of the messages that a bitmap may let pass by mistake."""
    filter_data_clean_time_span: int = 86_400_000
    """How long the filter of a group without consumers is kept."""

    delete_when: str = "04"
    """Hours of the day, local time, separated by semicolons."""
    file_reserved_time: int = 72
    """Hours from a segment's last change until it expires."""
    delete_file_batch_max: int = 10
    """Most segments that one run of the cleaner deletes."""
    clean_resource_interval: int = 10_000
    delete_commit_log_files_interval: int = 100
    destroy_maped_file_interval_forcibly: int = 120_000
    """How long an expired segment waits for its readers before it is deleted, ms."""
    redelete_hanged_file_interval: int = 120_000
    """Pause between two checks whether the readers have released it, ms."""
    delete_consume_queue_files_interval: int = 100
    clean_file_forcibly_enable: bool = True
    """Delete segments that have not expired when the disk is nearly full."""
    disk_max_used_space_ratio: int = 75
    """Percent of the disk above which expired segments are deleted at any hour."""
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    """Percent above which puts are refused."""
    correct_logic_min_offset_force_interval: int = 300_000
    """How often the least offset of a queue is determined again even without need."""

    timer_wheel_enable: bool = True
    """Accept messages that name the time of their delivery (``TIMER_DELAY_SEC`` and the like)."""
    timer_precision_ms: int = 1000
    """Such times are rounded to steps of so many ms."""
    timer_max_delay_sec: int = 259_200
    """Most seconds that a message may wait for its time."""
    timer_roll_window_slot: int = 172_800
    """Steps beyond which a message waits in several rounds."""
    timer_congest_num_each_slot: int = INT_MAX
    """Messages waiting for one step above which some are refused; above twice as many, all are."""
    timer_flush_interval_ms: int = 1000
    """Pause between two saves of the timer's progress."""
    mapped_file_size_timer_log: int = 104_857_600
    """Bytes of a file of the timer log."""

    transaction_op_format: int = 5
    """Form of half and op messages to write: 5 as in 5.3.3 (one op message for many halves), 4 as
    in 4.9.7 (one for each); both are always read. RocketMQ has no such key."""
    transaction_time_out: int = 6000
    """Age at which a half message is first checked. This and the following are keys of the broker
    (RocketMQ ``BrokerConfig``)."""
    transaction_check_max: int = 15
    """Checks after which a half message goes to ``TRANS_CHECK_MAX_TIME_TOPIC``."""
    transaction_check_interval: int = 30_000
    transaction_metric_flush_interval: int = 3000
    """How often ``config/transactionMetrics`` is written."""
    transaction_op_msg_max_size: int = 4096
    """Characters at which an op message is written without waiting."""
    transaction_op_batch_interval: int = 3000
    """How long answered half messages wait for others before their op message is written."""

    def __post_init__(self) -> None:
        given = dict(vars(self))
        for name in _TEXTS:
            value = given[name]
            if isinstance(value, os.PathLike):
                value = given[name] = os.fspath(value)  # a directory
                object.__setattr__(self, name, value)
            if name == "store_path_root_dir" and isinstance(value, str):
                object.__setattr__(self, name, local_path(value))
            if name in _LOG_DIRECTORIES and isinstance(value, str):
                paths = ",".join(local_path(path) for path in value.split(","))
                object.__setattr__(self, name, paths)
        STORE_SETTINGS.check(given)
        _ = self.delay_levels_ms, self.delete_hours

    @cached_property
    def delay_levels_ms(self) -> tuple[int, ...]:
        """Delay of each level in ms; level 1 comes first."""
        return parse_delay_levels(self.message_delay_level)

    @cached_property
    def delete_hours(self) -> tuple[int, ...]:
        """The hours of `delete_when`."""
        return parse_hours("deleteWhen", self.delete_when)

    @property
    def timer_roll_steps(self) -> int:
        """Steps of `timer_roll_window_slot`, or RocketMQ's most if it does not allow so many."""
        most = TIMER_SLOTS_TOTAL - TIMER_BLANK_SLOTS
        wanted = self.timer_roll_window_slot
        return wanted if _LEAST_ROLL_STEPS <= wanted <= most else most

    @property
    def is_slave(self) -> bool:
        """Whether messages come only from a master."""
        return self.broker_role == SLAVE and not self.duplication_enable

    @property
    def waits_for_replicas(self) -> bool:
        """Whether a put is answered only when other stores have the message, too."""
        is_sync = self.broker_role == SYNC_MASTER and not self.duplication_enable
        return is_sync and self.in_sync_replicas > 1

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> MessageStoreConfig:
        """Make a configuration from RocketMQ's keys and their texts.

        Keys of a broker's file that the store does not use are ignored. The spelling of releases
        up to 4.5.1 (``mapedFileSizeCommitLog``) counts if the newer one is not given.

        Raises
        ------
        StoreConfigError
            A text is not a number or flag where one is needed, or a value is out of bounds.
        """
        values: dict[str, Any] = {}
        old = {new: key for key, new in _OLD_SPELLINGS.items() if key in properties}
        for key, name in KEYS.items():
            text = properties.get(key)
            if text is None and key in old:
                text = properties[old[key]]
                _say(f"{old[key]}={text} sets {key}, in the spelling used up to release 4.5.1")
            if text is not None:
                text = text.strip() if name in _CHOICES else text
                values[name] = STORE_SETTINGS.parse(name, text)
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> MessageStoreConfig:
        r"""Read a broker's configuration file (``-c broker.conf``).

        One line in the log names settings of RocketMQ's stores that have no effect here.

        Raises
        ------
        StoreReadError
            The file cannot be read.
        StoreConfigError
            A ``\u`` escape is malformed.
        """
        properties = load_broker_config(path)
        warn_of_ignored(properties, os.fspath(path))
        return cls.from_properties(properties)


STORE_SETTINGS = Settings(MessageStoreConfig, _BOUNDS, (1, INT_MAX), choices=_CHOICES)
_TEXTS = [name for name, kind in STORE_SETTINGS.kinds.items() if kind is str]
KEYS: dict[str, str] = {key: name for name, key in STORE_SETTINGS.keys.items()}
"""RocketMQ's key -> field of `MessageStoreConfig`."""


def load_broker_config(path: str | os.PathLike[str]) -> dict[str, str]:
    r"""Return the settings in a broker's file (``-c broker.conf``) by RocketMQ's keys.

    It is read as a broker reads it: Java properties in Latin-1. A value that RocketMQ cannot parse
    (``fileReservedTime=48 # two days``), or that no store can have, is left out, so that the
    default counts, with a warning that names file and line. Where a flag is declared, a text other
    than ``true`` or ``false`` becomes ``false``, also with a warning.

    Raises
    ------
    StoreReadError
        The file cannot be read, or is far too large.
    StoreConfigError
        A ``\u`` escape is malformed: a broker does not start with that.
    """
    path, found = os.fspath(path), {}
    for key, given in read_properties(path).items():
        place = f"{path}, line {given.line}"
        if has_byte_order_mark(key):
            _say(f"{place}: begins with a byte order mark, so RocketMQ does not recognize this key")
        try:
            text = as_java_reads(key, given.value, place)
            name = _OLD_SPELLINGS.get(key, key)
            if name in KEYS:
                MessageStoreConfig.from_properties({name: text})  # raises if no store can have it
            found[key] = text
        except StoreConfigError as err:
            _say(f"{place}: {err}; the default applies, as in RocketMQ")
    return found


def warn_of_ignored(
    properties: Iterable[str], place: str, broker_keys: Collection[str] = ()
) -> None:
    """Name the settings of RocketMQ that have no effect here, in one line of the log.

    Parameters
    ----------
    broker_keys
        Keys that a broker of this package reads; if empty, there is no broker, and settings of
        brokers are not named.
    """
    known = frozenset().union(*STORE_KEYS.values())
    if broker_keys:
        known = known.union(*BROKER_KEYS.values())
    effective = {*KEYS, *_OLD_SPELLINGS, *broker_keys}
    ignored = sorted(key for key in properties if key in known and key not in effective)
    if ignored:
        _say(f"{place}: settings of RocketMQ that have no effect here: {', '.join(ignored)}")


def as_java_reads(key: str, text: str, place: str) -> str:
    """Return a value as RocketMQ parses it, as text.

    Source: ``MixAll.properties2Object`` (release 5.3.3).

    Raises
    ------
    StoreConfigError
        It does not fit the type that Java declares for the key: RocketMQ ignores such a setting.
    """
    kind = java_type(key)
    if kind == "boolean":
        if text.lower() not in {"true", "false"}:
            _say(
                f"{place}: {key}={shortened(text)} is read as false, as in RocketMQ: expected "
                "true or false"
            )
        return str(text.lower() == "true").lower()
    if kind in _JAVA_BITS:
        text = str(_java_number(key, text, _JAVA_BITS[kind]))
    elif kind == "double" and not _JAVA_DOUBLE.fullmatch(text.strip()):
        raise StoreConfigError(f"{key}={shortened(text)}: expected a number")
    elif kind is not None:
        text = text.strip(_JAVA_BLANKS)
    return text


def _java_number(key: str, text: str, bits: int) -> int:
    number = int(text) if _JAVA_NUMBER.fullmatch(text) else None
    if number is None or not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise StoreConfigError(f"{key}={shortened(text)}: expected a whole number of {bits} bits")
    return number


@lru_cache(maxsize=1000)
def _say(text: str) -> None:
    """Log a warning, but the same one only once, as a file is read several times."""
    logger.warning(text)


def config_key_names() -> tuple[str, ...]:
    """Return RocketMQ's keys of all settings."""
    return tuple(KEYS)


def with_default_sizes(config: MessageStoreConfig) -> MessageStoreConfig:
    """Return the configuration of a new store: file sizes that are None become RocketMQ's.

    The size of queue files is rounded up to whole units, as in RocketMQ.
    """
    missing: dict[str, Any] = {
        name: size for name, size in DEFAULT_SIZES.items() if getattr(config, name) is None
    }
    queue_bytes = config.mapped_file_size_consume_queue
    if queue_bytes is not None:
        missing["mapped_file_size_consume_queue"] = -(-queue_bytes // CQ_UNIT.size) * CQ_UNIT.size
    return replace(config, **missing)
