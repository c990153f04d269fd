# SPDX-License-Identifier: Apache-2.0
"""Every structure on disk and between master and slave, declared once, field by field.

The scalar and the columnar codec of a structure both come from its one field list here;
`store_core.database.rocksdb_layout` has the structures in RocksDB.
"""

from __future__ import annotations

import re
import struct
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_SIGNED = {"i1": "b", "i2": "h", "i4": "i", "i8": "q"}
_STRUCT_CODE = {**_SIGNED, **{f"u{code[1]}": char.upper() for code, char in _SIGNED.items()}}


def _struct_code(code: str) -> str:
    return _STRUCT_CODE.get(code) or f"{int(code[1:])}s"


class RecordLayout:
    """Fields of a big-endian structure, as a numpy dtype and as an equal ``struct.Struct``.

    Parameters
    ----------
    fields
        ``(name, code)`` pairs; codes are ``i1 i2 i4 i8 u1 u2 u4 u8`` or ``V<n>`` for n raw bytes
        (never ``S<n>``: numpy drops trailing NULs of those).
    """

    def __init__(self, name: str, fields: Sequence[tuple[str, str]]) -> None:
        self.name = name
        self.dtype = np.dtype([(f, c if c[0] == "V" else ">" + c) for f, c in fields])
        self.struct = struct.Struct(">" + "".join(_struct_code(c) for _, c in fields))
        self.size = self.struct.size
        row_type: Any = namedtuple  # mypy wants literal fields; these are data
        self.row: Any = row_type(name, [f for f, _ in fields])
        self._at = {f: int(self.dtype.fields[f][1]) for f, _ in fields} if self.dtype.fields else {}

    def at(self, field: str) -> int:
        """Return the byte position of a field inside the structure."""
        return self._at[field]

    def unpack(self, buf: Any, at: int = 0) -> Any:
        """Return the structure at byte ``at`` as a named tuple; ``struct.error`` past the end."""
        return self.row._make(self.struct.unpack_from(buf, at))

    def pack(self, **values: Any) -> bytes:
        """Return the bytes of a structure; every field must be given."""
        return self.struct.pack(*self.row(**values))

    def table(self, buf: Any, at: int = 0, count: int = -1) -> npt.NDArray[np.void]:
        """View ``count`` adjacent structures from byte ``at`` on (zero copy)."""
        return np.frombuffer(buf, self.dtype, count, at)

    def gather(
        self, data: npt.NDArray[np.uint8], starts: npt.NDArray[np.integer[Any]]
    ) -> npt.NDArray[np.void]:
        """Copy scattered structures out of ``data`` (contiguous bytes).

        The caller has checked ``0 <= starts`` and ``starts + size <= len(data)``.
        It indexes an array of overlapping structures, one at every byte: 6 ns per header, where an
        index array of bytes takes 150 ns and ``struct`` 300 ns.
        """
        if len(starts) == 0:
            return np.empty(0, self.dtype)
        raw = np.dtype(f"V{self.size}")
        everywhere = np.ndarray((len(data) - self.size + 1,), raw, data, strides=(1,))
        rows: npt.NDArray[np.void] = everywhere[starts].view(self.dtype)
        return rows


def native(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a big-endian column in native byte order, contiguous (pyarrow refuses others)."""
    return np.ascontiguousarray(column.astype(column.dtype.newbyteorder("=")))


# Names of the directories and files of a store, below its root.
#
# Source: RocketMQ ``StorePathConfigHelper``, ``BrokerPathConfigHelper``, ``TimerMessageStore``,
# ``CompactionStore`` (release 5.3.3), ``MessageRocksDBStorage`` (5.5.1).

COMMIT_LOG_DIR = "commitlog"  # unless storePathCommitLog names another
CONSUME_QUEUE_DIR = "consumequeue"
CONSUME_QUEUE_EXT_DIR = "consumequeue_ext"
ROCKSDB_CONSUME_QUEUE_DIR = "consumequeue_rocksdb"  # with useSeparateStorePathForRocksdbCQ
ROCKSDB_STORE_DIR = "rocksdbstore"  # 5.4.0 on: index, timers and transactions in a database
BATCH_CONSUME_QUEUE_DIR = "batchconsumequeue"
INDEX_DIR = "index"
CONFIG_DIR = "config"
TIMER_LOG_DIR = "timerlog"
TIMER_WHEEL_FILE = "timerwheel"
TIMER_CHECKPOINT_FILE = "timercheck"  # below CONFIG_DIR
_WHEEL_SNAPSHOT = re.compile(TIMER_WHEEL_FILE + r"\.([0-9]{1,19})")
COMPACTION_DIR = "compaction"
COMPACTION_LOG_DIR = "compactionLog"  # below COMPACTION_DIR, as the next
COMPACTION_QUEUE_DIR = "compactionCq"

CHECKPOINT_FILE = "checkpoint"
LOCK_FILE = "lock"
ABORT_FILE = "abort"
ABORT_BACKUP_FILE = "abort.bak"

QUEUE_DIRS = (
    CONSUME_QUEUE_DIR,
    CONSUME_QUEUE_EXT_DIR,
    BATCH_CONSUME_QUEUE_DIR,
)


def wheel_snapshot(name: str) -> int | None:
    """Return the timer log position of a snapshot of the wheel; None for other names.

    Brokers with ``timerWheelSnapshotFlush=true`` write ``timerwheel.N`` instead of the wheel.
    """
    found = _WHEEL_SNAPSHOT.fullmatch(name)
    return int(found[1]) if found else None


# Commit log records: messages V1 and V2, blank records, items of inner batches.
#
# Source: RocketMQ ``MessageExtEncoder.encode``, ``MessageDecoder``, ``MessageSysFlag``,
# ``CommitLog`` (release 5.3.3; V1 is the same in 4.x).

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

# The first eight bytes of every record, which a walk along the log reads.
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
"""Smallest record: IPv4 hosts, V1, with empty body, topic and properties."""

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
    """Return the header layout for a record's sys flag."""
    return HEADERS[bool(sys_flag & BORNHOST_V6_FLAG), bool(sys_flag & STOREHOST_V6_FLAG)]


# Consume queue units, extension units and batch consume queue units.
#
# Source: RocketMQ ``ConsumeQueue``, ``ConsumeQueueExt``, ``BatchConsumeQueue`` (release 5.3.3).

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


# Index files: a header, a table of hash slots, and entries chained from the newest back.
#
# Source: RocketMQ ``IndexFile``, ``IndexHeader`` (release 5.3.3), ``IndexService`` (5.5.1).

INDEX_HEADER = RecordLayout(
    "index_header",
    [
        ("begin_timestamp", "i8"),  # 0   store time of the first entry's record, ms
        ("end_timestamp", "i8"),  # 8   ... of the last entry's
        ("begin_phy_offset", "i8"),  # 16  start of the first entry's record
        ("end_phy_offset", "i8"),  # 24  ... of the last entry's
        ("hash_slot_count", "i4"),  # 32  used slots (up to 4.7.0: entries)
        ("index_count", "i4"),  # 36  next entry's number; the first is 1
    ],
)
INDEX_SLOT = RecordLayout("index_slot", [("newest_entry", "i4")])
INDEX_ENTRY = RecordLayout(
    "index_entry",
    [
        ("key_hash", "i4"),  # 0   of topic#key, not negative
        ("commit_log_offset", "i8"),  # 4
        ("time_diff_seconds", "i4"),  # 12  since the header's begin_timestamp
        ("previous_entry", "i4"),  # 16  next older entry of the chain; 0 = none
    ],
)


TAG_TYPE = "T"
"""Type of the entries for tags (5.4.0 on), which are those of ``topic#T#tags``.

A key ``T#tags`` has the same hash, in RocketMQ too.
"""

_MOST_NUMBER = 2**31 - 1  # slots and entries are counted in 32 bits


def index_file_bytes(max_hash_slot_num: int, max_index_num: int) -> int:
    """Return the length of an index file with these numbers of slots and entries."""
    return (
        INDEX_HEADER.size + max_hash_slot_num * INDEX_SLOT.size + max_index_num * INDEX_ENTRY.size
    )


MOST_INDEX_FILE_BYTES = index_file_bytes(_MOST_NUMBER, _MOST_NUMBER)
"""No index file of RocketMQ can be longer."""


# The ``checkpoint`` file.
#
# Source: RocketMQ ``StoreCheckpoint`` (release 5.5.1; 5.3.3 does not change the last field, 4.x
# writes only the first three).

CHECKPOINT = RecordLayout(
    "checkpoint",
    [
        ("physic_msg_timestamp", "i8"),  # 0   store time up to which the log is flushed, ms
        ("logics_msg_timestamp", "i8"),  # 8   store time of the last dispatched record
        ("index_msg_timestamp", "i8"),  # 16  end time of the last full index file
        ("master_flushed_offset", "i8"),  # 24  5.x
        ("confirm_phy_offset", "i8"),  # 32  5.x: start of the last record found by recovery
        (
            "logics_physical_offset",
            "i8",
        ),  # 40  5.5.0 on: ... whose queues are flushed
    ],
)
CHECKPOINT_FILE_BYTES = 4096


# The timer wheel, the timer log and the timer checkpoint of RocketMQ 5.
#
# Source: RocketMQ ``Slot``, ``TimerWheel``, ``TimerLog``, ``TimerCheckpoint``,
# ``TimerMessageStore`` (release 5.3.3).

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
"""Slots of the wheel, whatever the precision; the file has twice as many."""
TIMER_WHEEL_SLOTS = 2 * TIMER_SLOTS_TOTAL
TIMER_BLANK_SLOTS = 60

TIMER_LOG_UNIT = RecordLayout(
    "timer_log_unit",
    [
        ("size", "i4"),  # 0   52
        ("prev_pos", "i8"),  # 4   the unit before in the same slot; -1 if none
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

# Follows the last unit of a file; the rest of the file means nothing.
TIMER_LOG_BLANK = RecordLayout(
    "timer_log_blank",
    [
        ("size", "i4"),  # 0   bytes left in the file
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
        ("last_timer_queue_offset", "i8"),  # 16  next of rmq_sys_wheel_timer to enqueue
        ("master_timer_queue_offset", "i8"),  # 24  the master's
        ("state_version", "i8"),  # 32  the data version
        ("timestamp", "i8"),  # 40
        ("counter", "i8"),  # 48
    ],
)
TIMER_CHECKPOINT_FILE_BYTES = 4096


# Layout of a DLedger log: the header before each record, the blank after the last of a file.
#
# Source: ``DLedgerEntryCoder``, ``DLedgerMmapFileStore``, ``MmapFileList`` of DLedger 0.3.1.2,
# which RocketMQ 4.9.7 and 5.3.3 bring along, and RocketMQ ``DLedgerCommitLog`` (5.3.3).

# An entry is this header and a record of the commit log, whose own offset is that of its first
# byte: ``pos`` plus the size of the header.
DLEDGER_ENTRY = RecordLayout(
    "dledger_entry",
    [
        ("magic", "i4"),  # 0   DLEDGER_MAGIC
        ("size", "i4"),  # 4   header and record
        ("index", "i8"),  # 8   one more than that of the entry before
        ("term", "i8"),  # 16  of the leader that took the message; never less than before
        ("pos", "i8"),  # 24  physical offset of the entry
        ("channel", "i4"),  # 32  never set
        ("chain_crc", "u4"),  # 36  never set
        ("body_crc", "u4"),  # 40  never set: the record's own CRCs protect it
        ("body_size", "i4"),  # 44  bytes of the record
    ],
)
DLEDGER_MAGIC = 1

# Follows the last entry of a file; the rest of the file is zero.
DLEDGER_BLANK = RecordLayout(
    "dledger_blank",
    [
        ("magic", "i4"),  # 0   DLEDGER_BLANK_MAGIC
        ("size", "i4"),  # 4   bytes left in the file, including these
    ],
)
DLEDGER_BLANK_MAGIC = -1

# One unit per entry, that of entry ``index`` at ``index * 32``, in files of 160 MiB.
DLEDGER_INDEX_UNIT = RecordLayout(
    "dledger_index_unit",
    [
        ("magic", "i4"),  # 0
        ("pos", "i8"),  # 4
        ("size", "i4"),  # 12
        ("index", "i8"),  # 16
        ("term", "i8"),  # 24
    ],
)

DLEDGER_DATA_DIR = "data"  # below the directory of the node, dledger-<dLegerSelfId>
DLEDGER_INDEX_DIR = "index"
DLEDGER_CHECKPOINT_FILE = "checkpoint"


# Data between master and slave: reports of offsets, frames of the commit log.
#
# There is no handshake. Source: RocketMQ ``DefaultHAClient``, ``DefaultHAConnection`` (release
# 5.3.3; the same in 4.9.7).

REPORT = RecordLayout(
    "report",
    [
        ("max_offset", "i8"),  # 0  end of the slave's commit log
    ],
)
"""Slave to master. The first one on a connection also says where the transfer begins; if 0, at the
beginning of the master's last segment."""

TRANSFER_HEADER = RecordLayout(
    "transfer_header",
    [
        ("offset", "i8"),  # 0  physical offset of the first byte of the body
        ("body_size", "i4"),  # 8  bytes of the commit log that follow; 0 in a heartbeat
    ],
)
"""Master to slave."""

MAX_BODY_BYTES = (4 << 20) - TRANSFER_HEADER.size
"""A slave of RocketMQ reads into a buffer of 4 MiB, and accepts only whole frames."""
