"""The timer wheel, the timer log and the timer checkpoint of RocketMQ 5.

Source: RocketMQ ``Slot``, ``TimerWheel``, ``TimerLog``, ``TimerCheckpoint``, ``TimerMessageStore``
(release 5.3.3).
"""

from __future__ import annotations

from store_core.layout.record_layout import RecordLayout

TIMER_SLOT = RecordLayout(
    "timer_slot",
    [
        ("time", "i8"),  # 0   steps of timerPrecisionMs since the epoch; the slot is this time's
        ("first_pos", "i8"),  # 8   timer log position of its oldest unit
        ("last_pos", "i8"),  # 16  and of its newest
        ("count", "i4"),  # 24  units, less those that delete twice
        ("magic", "i4"),  # 28  0
    ],
)
TIMER_SLOTS_TOTAL = 7 * 24 * 3600
"""Slots of the wheel, of which the file has twice as many, whatever the precision."""
TIMER_WHEEL_SLOTS = 2 * TIMER_SLOTS_TOTAL
TIMER_BLANK_SLOTS = 60

TIMER_LOG_UNIT = RecordLayout(
    "timer_log_unit",
    [
        ("size", "i4"),  # 0   52
        ("prev_pos", "i8"),  # 4   the unit before in the same slot; -1: there is none
        ("magic", "i4"),  # 12  bits below
        ("write_time", "i8"),  # 16  ms, whole steps: when it was appended
        ("delay", "i4"),  # 24  ms; the time of its slot is the sum
        ("commit_log_offset", "i8"),  # 28  of the record in rmq_sys_wheel_timer
        ("message_size", "i4"),  # 36  bytes of that record
        ("topic_hash", "i4"),  # 40  of the real topic, as Java's String.hashCode
        ("reserved", "i8"),  # 44  0
    ],
)
TIMER_MAGIC_DEFAULT = 1
TIMER_MAGIC_ROLL = 2
TIMER_MAGIC_DELETE = 4
TIMER_MAGIC_BITS = 0xF
"""No unit has another bit in its ``magic``."""

# What follows the last unit of a file; the rest of the file means nothing.
TIMER_LOG_BLANK = RecordLayout(
    "timer_log_blank",
    [
        ("size", "i4"),  # 0   bytes that are left in the file
        ("zero", "i8"),  # 4
        ("magic", "i4"),  # 12
    ],
)
TIMER_LOG_BLANK_MAGIC = 0xCBD43194 - (1 << 32)

TIMER_CHECKPOINT = RecordLayout(
    "timer_checkpoint",
    [
        ("last_read_time_ms", "i8"),  # 0   slots before it are delivered
        ("last_timer_log_flush_pos", "i8"),  # 8
        ("last_timer_queue_offset", "i8"),  # 16  next of rmq_sys_wheel_timer that is to be enqueued
        ("master_timer_queue_offset", "i8"),  # 24  the master's
        ("state_version", "i8"),  # 32  the data version
        ("timestamp", "i8"),  # 40
        ("counter", "i8"),  # 48
    ],
)
TIMER_CHECKPOINT_FILE_BYTES = 4096
