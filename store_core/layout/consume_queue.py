"""Consume queue units, extension units and batch consume queue units.

Source: RocketMQ ``ConsumeQueue``, ``ConsumeQueueExt``, ``BatchConsumeQueue`` (release 5.3.3).
"""

from __future__ import annotations

from store_core.layout.record_layout import RecordLayout

CQ_UNIT = RecordLayout(
    "cq_unit",
    [
        ("commit_log_offset", "i8"),  # 0   start of the record
        ("message_size", "i4"),  # 8   bytes of the whole record; 0 = not written
        ("tags_code", "i8"),  # 12  tag hash; delivery time in SCHEDULE_TOPIC_XXXX; ext address
    ],
)
PRE_BLANK_SIZE = 0x7FFFFFFF
"""``message_size`` of the filler before the first unit of a queue that begins inside a file."""

# Fixed part of an extension unit; ``bit_map_size`` bytes of filter bitmap follow.
CQ_EXT_UNIT = RecordLayout(
    "cq_ext_unit",
    [
        ("unit_size", "i2"),  # 0   20 + bitmap bytes; below 1 = end of file
        ("tags_code", "i8"),  # 2
        ("store_timestamp", "i8"),  # 10
        ("bit_map_size", "i2"),  # 18
    ],
)
CQ_EXT_END_BLANK_BYTES = 4
MAX_EXT_ADDRESS = -(2**31) - 1
"""A tags code at or below this is the address of an extension unit."""
EXT_ADDRESS_BASE = -(2**63)
"""Extension address = byte offset in the extension queue + this."""

BATCH_CQ_UNIT = RecordLayout(
    "batch_cq_unit",
    [
        ("commit_log_offset", "i8"),  # 0
        ("message_size", "i4"),  # 8
        ("tags_code", "i8"),  # 12
        ("store_timestamp", "i8"),  # 20
        ("base_queue_offset", "i8"),  # 28  queue offset of the first message
        ("batch_size", "i2"),  # 36  messages in the record
        ("compacted_offset", "i4"),  # 38  -1 when written
        ("reserved", "i4"),  # 42
    ],
)
