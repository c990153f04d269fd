# SPDX-License-Identifier: Apache-2.0
"""Writes index files in runs of entries, with the content that RocketMQ's dispatch writes.

Source: RocketMQ ``IndexFile.putKey``, ``IndexService.getAndCreateLastIndexFile`` (release 5.3.3).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from store_core.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt


_SLOTS_AT_ONCE = 1 << 10


class IndexWriter:
    """The index directory of one store while it is written.

    ``rolled_after``: number of entries after which a new file begins, although the old is not full.
    """

    def __init__(
        self,
        directory: Path,
        max_hash_slot_num: int,
        max_index_num: int,
        rolled_after: int | None = None,
    ) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._slot_num = max_hash_slot_num
        self._index_num = max_index_num
        self._most = rolled_after or max_index_num - 1
        self._file: _IndexFile | None = None
        self.full_end_timestamp = 0
        """End time of the last full file, for the checkpoint."""

    def put(
        self,
        key_hash: npt.NDArray[np.int64],
        commit_log_offset: npt.NDArray[np.int64],
        store_timestamp: npt.NDArray[np.int64],
    ) -> None:
        """Add entries in dispatch order, rolling to a new file when one is full."""
        at = 0
        while at < len(key_hash):
            if self._file is None or self._file.free == 0:
                self._roll(int(store_timestamp[at]))
            file = self._file
            assert file is not None
            stop = min(len(key_hash), at + file.free)
            file.put(key_hash[at:stop], commit_log_offset[at:stop], store_timestamp[at:stop])
            at = stop

    def _roll(self, now_ms: int) -> None:
        previous = self._file
        name = time.strftime("%Y%m%d%H%M%S", time.gmtime(now_ms // 1000)) + f"{now_ms % 1000:03d}"
        self._file = _IndexFile(self._directory / name, self._slot_num, self._index_num, self._most)
        if previous is not None:
            previous.close()
            self.full_end_timestamp = previous.end_timestamp
            self._file.begin_timestamp = previous.end_timestamp

    def close(self) -> None:
        """Finish the last file."""
        if self._file is not None:
            self._file.close()


class _IndexFile:
    def __init__(self, path: Path, slot_num: int, index_num: int, most_entries: int) -> None:
        self._file = path.open("xb")
        self._file.truncate(index_file_bytes(slot_num, index_num))
        self._entries_at = index_file_bytes(slot_num, 0)
        self._slots = np.zeros(slot_num, np.int32)
        self._most = most_entries
        self._next = 1
        self.begin_timestamp = 0
        self._begin_phy_offset = 0
        self._end_phy_offset = 0
        self.end_timestamp = 0

    @property
    def free(self) -> int:
        return self._most - self._next + 1

    def put(
        self,
        key_hash: npt.NDArray[np.int64],
        commit_log_offset: npt.NDArray[np.int64],
        store_timestamp: npt.NDArray[np.int64],
    ) -> None:
        entries = np.empty(len(key_hash), INDEX_ENTRY.dtype)
        entries["key_hash"] = key_hash
        entries["commit_log_offset"] = commit_log_offset
        # The first entry's difference refers to the previous end in the header: that of
        # the previous file, or none.
        first = store_timestamp[0] - self.begin_timestamp if self.begin_timestamp else 0
        if self._next == 1:
            self.begin_timestamp = int(store_timestamp[0])
            self._begin_phy_offset = int(commit_log_offset[0])
            entries["time_diff_seconds"] = (store_timestamp - self.begin_timestamp) // 1000
            entries["time_diff_seconds"][0] = first // 1000
        else:
            entries["time_diff_seconds"] = (store_timestamp - self.begin_timestamp) // 1000
        entries["previous_entry"] = self._chain(key_hash % len(self._slots))
        self._file.seek(self._entries_at + self._next * INDEX_ENTRY.size)
        self._file.write(entries.tobytes())
        self._next += len(entries)
        self.end_timestamp = int(store_timestamp[-1])
        self._end_phy_offset = int(commit_log_offset[-1])

    def _chain(self, slot: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the previous entry of each new one, and update the slots."""
        number = np.arange(self._next, self._next + len(slot), dtype=np.int32)
        order = np.argsort(slot, kind="stable")
        sorted_slot, sorted_number = slot[order], number[order]
        follows = np.concatenate(([False], sorted_slot[1:] == sorted_slot[:-1]))
        before = np.concatenate((sorted_number[:1], sorted_number[:-1]))
        previous = np.empty(len(slot), np.int32)
        previous[order] = np.where(follows, before, self._slots[sorted_slot])
        newest = np.concatenate((~follows[1:], [True]))
        self._slots[sorted_slot[newest]] = sorted_number[newest]
        return previous

    def close(self) -> None:
        header = INDEX_HEADER.pack(
            begin_timestamp=self.begin_timestamp,
            end_timestamp=self.end_timestamp,
            begin_phy_offset=self._begin_phy_offset,
            end_phy_offset=self._end_phy_offset,
            hash_slot_count=int(np.count_nonzero(self._slots)),
            index_count=self._next,
        )
        self._file.seek(0)
        self._file.write(header)
        slots = self._slots.astype(INDEX_SLOT.dtype["newest_entry"])
        for start in range(0, len(slots), _SLOTS_AT_ONCE):
            part = slots[start : start + _SLOTS_AT_ONCE]
            if part.any():  # else it stays a hole
                self._file.seek(INDEX_HEADER.size + start * INDEX_SLOT.size)
                self._file.write(part.tobytes())
        self._file.close()
