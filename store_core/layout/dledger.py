"""Layout of a DLedger log: the header before each record, the blank behind the last of a file.

Source: ``DLedgerEntryCoder``, ``DLedgerMmapFileStore``, ``MmapFileList`` of DLedger 0.3.1.2, which
RocketMQ 4.9.7 and 5.3.3 bring along, and RocketMQ ``DLedgerCommitLog`` (5.3.3).
"""

from __future__ import annotations

from store_core.layout.record_layout import RecordLayout

# An entry is this header and a record of the commit log, whose own offset is that of its first
# byte: ``pos`` and the size of the header.
DLEDGER_ENTRY = RecordLayout(
    "dledger_entry",
    [
        ("magic", "i4"),  # 0   DLEDGER_MAGIC
        ("size", "i4"),  # 4   header and record
        ("index", "i8"),  # 8   one more than that of the entry before
        ("term", "i8"),  # 16  of the leader that took the message; never less than before
        ("pos", "i8"),  # 24  physical offset of the entry
        ("channel", "i4"),  # 32  nobody sets it
        ("chain_crc", "u4"),  # 36  nobody sets it
        ("body_crc", "u4"),  # 40  nobody sets it: the record's own CRCs protect it
        ("body_size", "i4"),  # 44  bytes of the record
    ],
)
DLEDGER_MAGIC = 1

# What follows the last entry of a file; the rest of the file is zero.
DLEDGER_BLANK = RecordLayout(
    "dledger_blank",
    [
        ("magic", "i4"),  # 0   DLEDGER_BLANK_MAGIC
        ("size", "i4"),  # 4   bytes that are left in the file, these included
    ],
)
DLEDGER_BLANK_MAGIC = -1

# One unit an entry, that of entry ``index`` at ``index * 32``, in files of 160 MiB.
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
