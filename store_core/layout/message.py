"""Commit log records: messages V1 and V2, blank records, items of inner batches.

Source: RocketMQ ``MessageExtEncoder.encode``, ``MessageDecoder``, ``MessageSysFlag``,
``CommitLog`` (release 5.3.3; V1 is the same in 4.x).
"""

from __future__ import annotations

from store_core.layout.record_layout import RecordLayout

MESSAGE_MAGIC_CODE = -626843481  # 0xDAA320A7, topic length of one byte
MESSAGE_MAGIC_CODE_V2 = -626843477  # 0xDAA320AB, topic length of two bytes (since 5.1.0)
BLANK_MAGIC_CODE = -875286124  # 0xCBD43194, rest of the segment is unused

COMPRESSED_FLAG = 0x1
TRANSACTION_MASK = 0xC
TRANSACTION_NOT_TYPE = 0x0
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
NOT_QUEUED_BIT = 0x4  # prepared and rolled back messages are in no queue
BORNHOST_V6_FLAG = 0x10
STOREHOST_V6_FLAG = 0x20
NEED_UNWRAP_FLAG = 0x40
INNER_BATCH_FLAG = 0x80
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_LEGACY_ZLIB = 0x000
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300

MAX_PROPERTIES_BYTES = 32767
MAX_TOPIC_BYTES_V1 = 127
MAX_TOPIC_BYTES_V2 = 255

NAME_VALUE_SEPARATOR = 0x01
PROPERTY_SEPARATOR = 0x02

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_UNIQ_KEY = "UNIQ_KEY"
PROPERTY_DELAY = "DELAY"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QID = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_INNER_BASE = "INNER_BASE"
PROPERTY_CRC32 = "__CRC32#"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
KEY_SEPARATOR = " "

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LMQ_PREFIX = "%LMQ%"

CRC32_PROPERTY_BYTES = 20
"""``__CRC32#`` + 0x01 + ten digits + 0x02: the reserved tail of the properties."""

# What a walk along the log looks at: the first eight bytes of every record.
RECORD_PREFIX = RecordLayout("record_prefix", [("total_size", "i4"), ("magic_code", "i4")])


def _header(born_host_bytes: int, store_host_bytes: int) -> RecordLayout:
    return RecordLayout(
        "message_header",
        [  # byte positions with IPv4 hosts
            ("total_size", "i4"),  # 0   whole record
            ("magic_code", "i4"),  # 4
            ("body_crc", "i4"),  # 8   CRC-32 of the stored body, top bit cleared; 0 if empty
            ("queue_id", "i4"),  # 12
            ("flag", "i4"),  # 16  the application's
            ("queue_offset", "i8"),  # 20  index in the consume queue
            ("commit_log_offset", "i8"),  # 28  where this record starts
            ("sys_flag", "i4"),  # 36
            ("born_timestamp", "i8"),  # 40  ms, the producer's clock
            ("born_host", f"V{born_host_bytes}"),  # 48  address, then the port in four bytes
            ("store_timestamp", "i8"),  # 56  ms, the broker's clock
            ("store_host", f"V{store_host_bytes}"),  # 64
            ("reconsume_times", "i4"),  # 72
            ("prepared_transaction_offset", "i8"),  # 76
            ("body_length", "i4"),  # 84
        ],  # 88  body, topic length, topic, properties length, properties
    )


IPV4_HOST_BYTES = 8
IPV6_HOST_BYTES = 20

HEADERS = {
    (born_v6, store_v6): _header(
        IPV6_HOST_BYTES if born_v6 else IPV4_HOST_BYTES,
        IPV6_HOST_BYTES if store_v6 else IPV4_HOST_BYTES,
    )
    for born_v6 in (False, True)
    for store_v6 in (False, True)
}
"""Header layouts by (born host is IPv6, store host is IPv6)."""

HEADER_IPV4 = HEADERS[False, False]
SYS_FLAG_AT = HEADER_IPV4.at("sys_flag")
COMMIT_LOG_OFFSET_AT = HEADER_IPV4.at("commit_log_offset")
TOPIC_LENGTH_V1 = RecordLayout("topic_length_v1", [("value", "i1")])
TOPIC_LENGTH_V2 = RecordLayout("topic_length_v2", [("value", "i2")])
PROPERTIES_LENGTH = RecordLayout("properties_length", [("value", "i2")])
PROPERTIES_LENGTH_BYTES = PROPERTIES_LENGTH.size
BLANK_RECORD_BYTES = RECORD_PREFIX.size
MIN_RECORD_BYTES = HEADER_IPV4.size + 1 + PROPERTIES_LENGTH_BYTES
"""Smallest record: IPv4 hosts, V1, nothing in body, topic and properties."""

# One message inside the body of an inner batch, as a client encodes it.
# Source: MessageDecoder.encodeMessage, decodeMessage.
INNER_ITEM = RecordLayout(
    "inner_item",
    [
        ("total_size", "i4"),  # 0   this item
        ("magic_code", "i4"),  # 4   0, ignored
        ("body_crc", "i4"),  # 8   0, ignored
        ("flag", "i4"),  # 12
        ("body_length", "i4"),  # 16  then the body, properties length (i2), properties
    ],
)


def header_layout(sys_flag: int) -> RecordLayout:
    """Return the header layout that a record's sys flag asks for."""
    return HEADERS[bool(sys_flag & BORNHOST_V6_FLAG), bool(sys_flag & STOREHOST_V6_FLAG)]
