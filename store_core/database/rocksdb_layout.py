# SPDX-License-Identifier: Apache-2.0
"""Keys and values of the RocksDB databases in which a broker keeps queues and settings.

Source: RocketMQ ``RocksDBConsumeQueueTable``, ``RocksDBConsumeQueueOffsetTable``, ``ConfigHelper``,
``ConsumerOffsetManagerV2`` (release 5.3.3); ``MessageRocksDBStorage``, ``TimerRocksDBRecord``,
``TransRocksDBRecord`` (release 5.5.1).
"""

from __future__ import annotations

import struct

from store_core.layout import RecordLayout

DEFAULT_FAMILY = "default"
"""Column family of queue units, and of settings."""
OFFSET_FAMILY = "offset"
"""Column family of the ends of queues."""
VERSION_FAMILY, VERSION_KEY = "kvDataVersion", b"kvDataVersionKey"
"""Family and key of the data version in a settings database of version 1."""

QUEUE_DATABASE_UNIT = RecordLayout(
    "queue_database_unit",
    [
        ("commit_log_offset", "i8"),  # 0   start of the record
        ("message_size", "i4"),  # 8   bytes of the whole record
        ("tags_code", "i8"),  # 12  tag hash; delivery time in SCHEDULE_TOPIC_XXXX
        ("store_timestamp", "i8"),  # 20
    ],
)
QUEUE_END = RecordLayout(
    "queue_end",
    [
        ("commit_log_offset", "i8"),  # 0   start of the last record
        ("queue_offset", "i8"),  # 8   of the last record
    ],
)
TIMER_FAMILY, TRANSACTION_FAMILY = "timer", "trans"
"""Column families of ``rocksdbstore``: messages waiting for a time, and open half messages."""
TIMER_SCAN_KEY, TIMELINE_KEY = b"sys_topic_scan_offset_checkpoint", b"timeline_checkpoint"
"""Keys of the timer family: queue offset of the next message in the timer's topic, and the time
before which all messages are delivered."""
TIMER_VALUE = RecordLayout(
    "timer_value",
    [
        ("message_size", "i4"),  # 0
        ("commit_log_offset", "i8"),  # 4   start of the record in the timer's topic
    ],
)
HALF_VALUE = RecordLayout(
    "half_value",
    [
        ("check_times", "i4"),  # 0
        ("message_size", "i4"),  # 4
    ],
)
DISPATCHED_TOPIC = "CHECKPOINT_TOPIC"
"""Its entry in the offset family is the log offset up to which all units exist."""

_MARK = b"\1"
_LENGTH, _QUEUE_ID, _OFFSET = struct.Struct(">i"), struct.Struct(">i"), struct.Struct(">q")
OFFSET_KEY_BYTES = _OFFSET.size
_MAX, _KIND_BYTES = b"max", 3
_END_KEY_BYTES = _LENGTH.size + 3 * len(_MARK) + _KIND_BYTES + _QUEUE_ID.size

CONSUMER_OFFSET_TABLE, TOPIC_TABLE, GROUP_TABLE = 1, 3, 4
"""Tables of the single settings database of version 2."""
_TABLE = struct.Struct(">BHB")
_TABLE_PREFIX, _DATA_RECORD = 1, 2
_SHORT = struct.Struct(">H")
CONSUMER_OFFSET = RecordLayout("consumer_offset", [("value", "i8")])
JSON_SERIALIZATION = 1


def unit_prefix(topic: bytes, queue_id: int) -> bytes:
    """Return the prefix of the keys of a queue's units; the queue offset (i8) follows it."""
    return _MARK.join((_LENGTH.pack(len(topic)), topic, _QUEUE_ID.pack(queue_id), b""))


def unit_key(prefix: bytes, queue_offset: int) -> bytes:
    """Return the key of one unit."""
    return prefix + _OFFSET.pack(queue_offset)


def queue_offset_of(key: bytes) -> int:
    """Return the queue offset at the end of a unit's key."""
    value: int = _OFFSET.unpack_from(key, len(key) - _OFFSET.size)[0]
    return value


def end_key(topic: bytes, queue_id: int) -> bytes:
    """Return the key of a queue's end in the offset family."""
    return _MARK.join((_LENGTH.pack(len(topic)), topic, _MAX, _QUEUE_ID.pack(queue_id)))


def queue_of_end_key(key: bytes) -> tuple[bytes, int] | None:
    """Return topic and queue id of a key from `end_key`; None for any other key."""
    if len(key) < _END_KEY_BYTES:
        return None
    length = _LENGTH.unpack_from(key)[0]
    topic = key[_LENGTH.size + 1 : _LENGTH.size + 1 + max(length, 0)]
    queue_id: int = _QUEUE_ID.unpack_from(key, len(key) - _QUEUE_ID.size)[0]
    return (topic, queue_id) if key == end_key(topic, queue_id) else None


def table_prefix(table: int) -> bytes:
    """Return the prefix of the keys of a table's records in a settings database of version 2."""
    return _TABLE.pack(_TABLE_PREFIX, table, _DATA_RECORD)


def name_of_key(key: bytes) -> bytes:
    """Return the topic or group in a key of version 2; ValueError for any other key."""
    name, rest = _text(key[_TABLE.size :])
    if rest:
        raise ValueError(f"{len(rest)} bytes follow the name in the key {key!r}")
    return name


def offset_key_parts(key: bytes) -> tuple[bytes, bytes, int]:
    """Return group, topic and queue id in a key of consumer offsets of version 2."""
    group, rest = _text(key[_TABLE.size :])
    topic, rest = _text(rest[len(_MARK) :])
    if len(rest) != len(_MARK) + _QUEUE_ID.size:
        raise ValueError(f"the key {key!r} does not end with a queue id")
    return group, topic, _QUEUE_ID.unpack_from(rest, len(_MARK))[0]


def _text(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _SHORT.size:
        raise ValueError(f"the key ends within a length: {data!r}")
    stop = _SHORT.size + _SHORT.unpack_from(data)[0]
    if len(data) < stop:
        raise ValueError(f"the key ends within a name: {data!r}")
    return data[_SHORT.size : stop], data[stop:]
