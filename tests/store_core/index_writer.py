# SPDX-License-Identifier: Apache-2.0
"""Writes index files as RocketMQ does, entry by entry, for the tests of the readers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from store_core.index.index_file import key_hash
from store_core.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes

Put = tuple  # topic, key, commit log offset, store time (ms)


class IndexWriter:
    def __init__(self, slots: int = 10, entries: int = 50, begin_timestamp: int = 0) -> None:
        self.slots, self.entries = slots, entries
        self.data = bytearray(index_file_bytes(slots, entries))
        self.header = {
            "begin_timestamp": begin_timestamp,
            "end_timestamp": begin_timestamp,
            "begin_phy_offset": 0,
            "end_phy_offset": 0,
            "hash_slot_count": 0,
            "index_count": 1,
        }

    def put(self, topic: str, key: str, commit_log_offset: int, store_timestamp: int) -> None:
        header, number = self.header, self.header["index_count"]
        hash_of_key = key_hash(topic, key)
        at = INDEX_HEADER.size + hash_of_key % self.slots * INDEX_SLOT.size
        previous = INDEX_SLOT.unpack(self.data, at).newest_entry
        begin = header["begin_timestamp"]
        diff = max(0, (store_timestamp - begin) // 1000) if begin > 0 else 0
        row = INDEX_ENTRY.pack(
            key_hash=hash_of_key,
            commit_log_offset=commit_log_offset,
            time_diff_seconds=diff,
            previous_entry=previous,
        )
        self.patch(self.entry_at(number), row)
        self.patch(at, INDEX_SLOT.pack(newest_entry=number))
        if number == 1:
            header["begin_phy_offset"], header["begin_timestamp"] = (
                commit_log_offset,
                store_timestamp,
            )
        header["hash_slot_count"] += previous == 0
        header["index_count"] += 1
        header["end_phy_offset"], header["end_timestamp"] = commit_log_offset, store_timestamp
        self.patch(0, INDEX_HEADER.pack(**header))

    def put_all(self, puts: Iterable[Put]) -> IndexWriter:
        for put in puts:
            self.put(*put)
        return self

    def entry_at(self, number: int) -> int:
        return index_file_bytes(self.slots, 0) + number * INDEX_ENTRY.size

    def patch(self, at: int, data: bytes) -> None:
        self.data[at : at + len(data)] = data

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path
