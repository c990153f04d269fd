"""Index files: a header, a table of hash slots, and entries chained from the newest back.

Source: RocketMQ ``IndexFile``, ``IndexHeader`` (release 5.3.3), ``IndexService`` (5.5.1).
"""

from __future__ import annotations

from store_core.layout.record_layout import RecordLayout

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
    """Length of an index file with these numbers of slots and entries."""
    return (
        INDEX_HEADER.size + max_hash_slot_num * INDEX_SLOT.size + max_index_num * INDEX_ENTRY.size
    )


MOST_INDEX_FILE_BYTES = index_file_bytes(_MOST_NUMBER, _MOST_NUMBER)
"""No index file of RocketMQ can be longer."""
