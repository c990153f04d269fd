# SPDX-License-Identifier: Apache-2.0
"""The tables of the source and their columns, declared once; no Spark needed."""

from __future__ import annotations

from typing import NamedTuple

TIMESTAMP_MIN_MS = -62_135_596_800_000
TIMESTAMP_MAX_MS = 253_402_300_799_999
"""Times in ms that a Spark timestamp can hold: the years 1 to 9999, UTC. Others become null."""


class Column(NamedTuple):
    """A column: its name, Spark DDL type, whether it can be null, and what it means."""

    name: str
    type: str
    nullable: bool
    doc: str


class Table(NamedTuple):
    """A table: its columns, its columns on demand, and whether it shows damage as rows."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    on_demand: tuple[Column, ...] = ()
    shows_damage: bool = False


CORRUPT_RECORD = Column(
    "_corrupt_record", "string", True, "a gap, as JSON: reason, file, position, bytes lost"
)

_TOPIC = Column("topic", "string", False, "topic")
_QUEUE_ID = Column("queue_id", "int", False, "queue of the topic")
_QUEUE_OFFSET = Column("queue_offset", "bigint", False, "index in the consume queue")
_COMMIT_LOG_OFFSET = Column("commit_log_offset", "bigint", False, "physical offset of the record")
_STORE = Column("store", "string", False, "store root from which the row was read, as given")
_FIRST_STORED = Column("min_store_timestamp", "timestamp", True, "oldest store time")
_LAST_STORED = Column("max_store_timestamp", "timestamp", True, "newest store time")

_MESSAGE_COLUMNS = (
    _TOPIC._replace(doc="topic of the record"),
    _QUEUE_ID,
    _QUEUE_OFFSET,
    _COMMIT_LOG_OFFSET,
    Column("store_size", "int", False, "bytes of the record"),
    Column("message_id", "string", False, "offset message id: store host and physical offset"),
    Column("unique_key", "string", True, "property UNIQ_KEY (client message id)"),
    Column("keys", "array<string>", True, "words of property KEYS, in order, repeats kept"),
    Column("tags", "string", True, "property TAGS"),
    Column("body", "binary", False, "decompressed body; with body=raw as stored"),
    Column(
        "properties",
        "map<string,string>",
        False,
        "properties (last value of each name)",
    ),
    Column("flag", "int", False, "the application's flag"),
    Column("sys_flag", "int", False, "RocketMQ's flag bits, as stored"),
    Column("body_crc", "int", False, "CRC of the stored body, as stored"),
    Column("reconsume_times", "int", False, "how often consumption was retried"),
    Column("born_timestamp", "timestamp", True, "producer's clock; null if outside Spark's range"),
    Column("store_timestamp", "timestamp", True, "broker's clock; null if outside Spark's range"),
    Column("born_host", "string", False, "ip:port of the producer, IPv6 as [ip]:port"),
    Column("store_host", "string", False, "ip:port of the broker, IPv6 as [ip]:port"),
    Column("prepared_transaction_offset", "bigint", False, "as stored"),
    _STORE,
)
_PROPERTIES_RAW = Column(
    "properties_raw",
    "binary",
    False,
    "exact bytes of the properties, with order, repeated and empty entries",
)

_TABLES = (
    Table("messages", "one row per message", _MESSAGE_COLUMNS, (_PROPERTIES_RAW,), True),
    Table(
        "keys",
        "one row per message and distinct key",
        (
            Column("key", "string", False, "a word of KEYS, or UNIQ_KEY"),
            Column("key_kind", "string", False, "KEYS or UNIQ_KEY"),
            *_MESSAGE_COLUMNS,
        ),
        (_PROPERTIES_RAW,),
        True,
    ),
    Table(
        "consume_queue",
        "one row per consume queue unit",
        (
            _TOPIC,
            _QUEUE_ID,
            _QUEUE_OFFSET,
            _COMMIT_LOG_OFFSET,
            Column("message_size", "int", False, "bytes of the record"),
            Column("tags_code", "bigint", False, "tag hash, delivery time, or extension address"),
            _STORE,
        ),
    ),
    Table(
        "index",
        "one row per index entry",
        (
            Column("index_file", "string", False, "name of the index file"),
            Column("entry", "int", False, "number of the entry in the file, from 1"),
            Column("key_hash", "int", False, "hash of topic#key, not negative"),
            _COMMIT_LOG_OFFSET,
            Column("time_diff_seconds", "int", False, "time since the file's begin time"),
            Column("store_timestamp", "timestamp", True, "begin time plus the difference"),
            Column("slot", "int", False, "hash slot of the entry"),
            Column("previous", "int", False, "next older entry of the chain; 0 = none"),
            _STORE,
        ),
    ),
    Table(
        "segments",
        "one row per file",
        (
            Column("kind", "string", False, "commitlog, consumequeue, index, ..."),
            Column("path", "string", False, "the file"),
            Column("from_offset", "bigint", True, "offset of its first byte, from its name"),
            Column("file_size", "bigint", False, "length of the file in bytes"),
            Column("used_bytes", "bigint", True, "bytes with data, if known"),
            Column("first_store_timestamp", "timestamp", True, "store time of its first message"),
            Column("last_store_timestamp", "timestamp", True, "store time of its last message"),
            Column("messages", "bigint", True, "number of messages, if known"),
            _STORE,
        ),
    ),
    Table(
        "topics",
        "one row per topic",
        (
            _TOPIC,
            Column("queues", "int", False, "number of existing queues"),
            Column("messages", "bigint", False, "number of messages in them"),
            Column("bytes", "bigint", True, "total bytes of their records"),
            _FIRST_STORED,
            _LAST_STORED,
            Column("kind", "string", False, "normal, retry, dlq, system, ..."),
            Column("compacted_messages", "bigint", True, "messages in its compacted logs, if any"),
            _STORE,
        ),
    ),
    Table(
        "queues",
        "one row per topic and queue",
        (
            _TOPIC,
            _QUEUE_ID,
            Column("min_offset", "bigint", False, "first queue offset"),
            Column("max_offset", "bigint", False, "after the last queue offset"),
            Column("messages", "bigint", False, "number of messages in the queue"),
            Column("min_commit_log_offset", "bigint", True, "of the first message"),
            Column("max_commit_log_offset", "bigint", True, "of the last message"),
            _FIRST_STORED,
            _LAST_STORED,
            Column("compacted_messages", "bigint", True, "messages in its compacted log, if any"),
            Column("compacted_min_offset", "bigint", True, "first queue offset there"),
            Column("compacted_max_offset", "bigint", True, "after the last queue offset there"),
            _STORE,
        ),
    ),
    Table(
        "consumer_offsets",
        "one row per consumer group, topic and queue",
        (
            Column("group", "string", False, "consumer group"),
            _TOPIC,
            _QUEUE_ID,
            Column("consumer_offset", "bigint", False, "next offset to consume"),
            Column("broker_offset", "bigint", False, "after the last message of the queue"),
            Column(
                "lag",
                "bigint",
                False,
                "messages not consumed yet; a negative number is how far the offset is past "
                "the queue's end",
            ),
            Column("expired", "bigint", False, "how many of these messages are already deleted"),
            Column(
                "lag_ms",
                "bigint",
                True,
                "newest store time of the queue minus that of the first message not "
                "consumed; 0 if all are consumed",
            ),
            _STORE,
        ),
    ),
    Table(
        "delayed",
        "one row per message that waits or waited in a delay level",
        (
            Column("level", "int", False, "delay level, from 1"),
            Column("queue_offset", "bigint", False, "index in the queue of the level"),
            _COMMIT_LOG_OFFSET,
            Column("unique_key", "string", True, "property UNIQ_KEY (client message id)"),
            Column("real_topic", "string", True, "topic to which it is delivered"),
            Column("real_queue_id", "int", True, "queue to which it is delivered"),
            Column("reconsume_times", "int", False, "how often consumption was retried"),
            Column("store_timestamp", "timestamp", True, "when it was stored for waiting"),
            Column("deliver_timestamp", "timestamp", True, "when it is due"),
            Column("state", "string", False, "pending, or delivered"),
            _STORE,
        ),
    ),
    Table(
        "timers",
        "one row per message that waits or waited in the timer of a 5.x broker (wheel or RocksDB)",
        (
            Column("queue_offset", "bigint", False, "index in the queue of rmq_sys_wheel_timer"),
            _COMMIT_LOG_OFFSET,
            Column("unique_key", "string", True, "property UNIQ_KEY (client message id)"),
            Column("keys", "array<string>", True, "words of property KEYS"),
            Column("real_topic", "string", True, "topic to which it is delivered"),
            Column("real_queue_id", "int", True, "queue to which it is delivered"),
            Column("reconsume_times", "int", False, "how often consumption was retried"),
            Column("roll_times", "int", False, "how often it had gone round the wheel before"),
            Column("store_timestamp", "timestamp", True, "when it was stored for waiting"),
            Column("deliver_timestamp", "timestamp", True, "when it is due"),
            Column(
                "state",
                "string",
                False,
                "pending, delivered, cancelled, rolled (continued by a later row), or unknown",
            ),
            _STORE,
        ),
    ),
    Table(
        "transactions",
        "one row per transaction whose half message is in the log",
        (
            Column("transaction_id", "string", True, "property UNIQ_KEY of the half message"),
            _TOPIC._replace(doc="topic to which a commit delivers", nullable=True),
            Column("queue_id", "int", True, "queue to which a commit delivers"),
            Column(
                "producer_group",
                "string",
                True,
                "producer group, asked for the outcome",
            ),
            Column(
                "state",
                "string",
                False,
                "pending, committed, rolled_back, check_exceeded; unknown: no trace of its "
                "end, for example because the end was written just after the end of the read",
            ),
            Column("checks", "int", False, "number of checks that the broker counted"),
            Column("half_messages", "int", False, "copies of the half message; a check adds one"),
            Column("half_queue_offset", "bigint", False, "of the first copy, in the half topic"),
            Column("half_commit_log_offset", "bigint", False, "of the first copy"),
            Column("store_timestamp", "timestamp", True, "of the first copy"),
            Column(
                "end_timestamp", "timestamp", True, "when commit, rollback or discard was stored"
            ),
            Column("commit_commit_log_offset", "bigint", True, "of the committed message"),
            _STORE,
        ),
    ),
    Table(
        "checkpoint",
        "one row per store",
        (
            Column("physic_msg_timestamp", "timestamp", True, "time of the last flushed record"),
            Column("logics_msg_timestamp", "timestamp", True, "time of the last dispatched record"),
            Column(
                "index_msg_timestamp", "timestamp", True, "end time of the last full index file"
            ),
            Column("master_flushed_offset", "bigint", True, "since 5.0"),
            Column("confirm_phy_offset", "bigint", True, "last record found by recovery, 5.x"),
            Column("logics_physical_offset", "bigint", True, "last flushed dispatch, since 5.5"),
            _STORE,
        ),
    ),
    Table(
        "plan",
        "one row per store and access path: what the same options would read",
        (
            _STORE,
            Column(
                "access_path", "string", False, "a value of option access, or message_id or none"
            ),
            Column("reason", "string", False, "why this path was chosen"),
            Column("splits", "int", False, "Spark partitions"),
            Column("bytes_to_read", "bigint", False, "bytes of the files to read"),
            Column("bytes_skipped", "bigint", False, "bytes of the log that need not be read"),
            Column(
                "log_bytes_scanned",
                "bigint",
                False,
                "parts of the log scanned because index or queues do not cover them",
            ),
            Column("missing_offsets", "string", True, "JSON: requested offsets that are gone"),
            Column("end_offset", "bigint", False, "physical offset where the snapshot ends"),
        ),
    ),
)

TABLES = {table.name: table for table in _TABLES}
"""All tables by name; ``messages`` comes first."""

_ROUTES = Table(
    "routes",
    "one row per topic, broker and address",
    (
        _TOPIC,
        Column("broker_name", "string", False, "name of the broker"),
        Column("cluster", "string", False, "its cluster"),
        Column("broker_id", "bigint", False, "0: the master"),
        Column("address", "string", False, "host:port"),
        Column("read_queues", "int", False, "queues to read"),
        Column("write_queues", "int", False, "queues to write"),
        Column("perm", "string", False, "r, w, rw, or empty"),
        _STORE,
    ),
)

_SHARED_TABLES = ("messages", "topics", "queues", "consumer_offsets")
LIVE_TABLES = {**{name: TABLES[name] for name in _SHARED_TABLES}, "routes": _ROUTES}
"""The tables of a running cluster; column ``store`` is ``brokerName@address`` there."""


def table_named(name: str) -> Table:
    """Return a table of stores or of clusters; equal names have equal columns."""
    return LIVE_TABLES[name] if name in LIVE_TABLES else TABLES[name]
