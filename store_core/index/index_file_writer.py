"""One index file while entries are added: chains of whole batches at once.

Source: RocketMQ ``IndexFile.putKey``, ``IndexHeader`` (release 5.3.3).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.files.byte_source import LocalByteSource
from store_core.files.file_writing import new_file, start_writeback, sync_data, write_all
from store_core.files.regular_file import open_to_write
from store_core.index.index_file import IndexFile, IndexHeader
from store_core.layout.index import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

EMPTY_HEADER = IndexHeader(
    begin_timestamp=0,
    end_timestamp=0,
    begin_phy_offset=0,
    end_phy_offset=0,
    hash_slot_count=0,
    index_count=1,
)
"""What the first file of a store begins with."""

_PAGE_BITS = 12
_ROW_BITS = 32
_INT32_MAX = int(np.iinfo(np.int32).max)


class IndexFileWriter:
    """One index file while entries are added; sparse at full length from the start.

    Slots are kept in memory. `append` writes entries, which nothing names yet; `publish` makes
    them found. Files are written with ``pwrite``: in a mapping, a full disk would end the process.

    Parameters
    ----------
    header
        What the header of a new file holds; of a file that exists its own is read.

    Raises
    ------
    CorruptRecordError
        Length or header of the file do not fit these numbers.
    """

    def __init__(
        self, path: Path, max_hash_slot_num: int, max_index_num: int, header: IndexHeader
    ) -> None:
        self.path = path
        self.header = header
        self._index_num = max_index_num
        self._sync_failure: tuple[Any, ...] | None = None
        self._slots = np.zeros(max_hash_slot_num, INDEX_SLOT.dtype["newest_entry"])
        self._dirty = np.zeros((index_file_bytes(max_hash_slot_num, 0) >> _PAGE_BITS) + 1, bool)
        if path.exists():
            self._load(max_hash_slot_num)
            self._descriptor = open_to_write(str(path))
        else:
            size = index_file_bytes(max_hash_slot_num, max_index_num)
            self._descriptor = new_file(str(path.absolute()), size)
            self._begin()

    def _begin(self) -> None:
        try:
            self._write(INDEX_HEADER.pack(**self.header._asdict()), 0)
        except OSError:  # an index file of another length would be damage
            os.close(self._descriptor)
            self.path.unlink()
            raise

    def _load(self, max_hash_slot_num: int) -> None:
        with LocalByteSource(str(self.path)) as source:
            file = IndexFile(source, max_hash_slot_num, self._index_num)
            self.header = file.header
            self._slots[:] = file.slots()

    @property
    def free(self) -> int:
        """Entries that still fit; number 0 is never used."""
        return self._index_num - self.header.index_count

    def append(self, key_hash: Int32s, commit_log_offset: Int64s, store_timestamp: Int64s) -> None:
        """Add entries, at least one and at most `free`; found after `publish`.

        When that fails nothing has changed, and the same entries can be given again.
        """
        slot = (key_hash % np.int32(len(self._slots))).astype(np.int64)
        held = self._slots[slot]
        try:
            self.header = self._append(slot, held, key_hash, commit_log_offset, store_timestamp)
        except BaseException:  # not of the disk alone: arrays need memory, and numpy files of code
            self._slots[slot] = held
            raise

    def _append(
        self,
        slot: Int64s,
        held: npt.NDArray[Any],
        key_hash: Int32s,
        commit_log_offset: Int64s,
        store_timestamp: Int64s,
    ) -> IndexHeader:
        """Let slots name new entries, write these, and return the header with them."""
        header, count = self.header, len(key_hash)
        number = header.index_count
        newest = held.astype(np.int32)
        # A slot that names no entry of the file counts as empty.
        newest[(newest < 0) | (newest >= number)] = 0
        own = np.arange(number, number + count, dtype=np.int32)
        # Of rows that share a slot any one stays. Numpy is slow to swap bytes while it scatters.
        self._slots.view(np.int32)[slot] = own.astype(self._slots.dtype).view(np.int32)
        stays = self._slots[slot] == own
        previous = newest if stays.all() else self._chained(newest, slot, number, stays)
        entries = np.empty(count, INDEX_ENTRY.dtype)
        entries["key_hash"] = key_hash
        entries["commit_log_offset"] = commit_log_offset
        entries["time_diff_seconds"] = self._time_diffs(store_timestamp)
        entries["previous_entry"] = previous
        at = index_file_bytes(len(self._slots), 0) + number * INDEX_ENTRY.size
        self._write(memoryview(entries.view(np.uint8)), at)
        start_writeback(self._descriptor, at, entries.nbytes)  # slots are written many times
        self._dirty[(slot * INDEX_SLOT.size + INDEX_HEADER.size) >> _PAGE_BITS] = True
        if number == 1:
            header = header._replace(
                begin_timestamp=int(store_timestamp[0]), begin_phy_offset=int(commit_log_offset[0])
            )
        return header._replace(
            end_timestamp=int(store_timestamp[-1]),
            end_phy_offset=int(commit_log_offset[-1]),
            hash_slot_count=header.hash_slot_count + int(np.count_nonzero(stays & (newest == 0))),
            index_count=number + count,
        )

    def _chained(
        self, newest: Int32s, slot: Int64s, number: int, stays: npt.NDArray[np.bool_]
    ) -> Int32s:
        """Return what each row follows where some rows share a slot; name the last one there.

        Only those are sorted, few as long as there are many more slots than rows.
        """
        # Rows 0 to 3, entries 10 to 13, in slots [4, 9, 4, 4]: slot 4 held entry 3, slot 9 none.
        # Of slot 4 one row stays, here row 3, so rows = [0, 2, 3] are sorted; before = [3, 10, 12].
        # With row 1, which follows nothing: previous = [3, 0, 10, 12]. Slot 4 names entry 13.
        lost = np.flatnonzero(~stays)
        rows = np.concatenate([lost, np.unique(self._slots[slot[lost]] - np.int32(number))])
        order, first = _grouped(slot[rows], rows)
        before = np.empty(len(order), np.int32)
        before[1:] = order[:-1] + number
        before[first] = newest[order[first]]
        previous = newest.copy()
        previous[order] = before
        last = np.append(order[first[1:] - 1], order[-1:])
        self._slots[slot[last]] = last + number
        return previous

    def _time_diffs(self, store_timestamp: Int64s) -> Int64s:
        """Return whole seconds since the file's begin, as they fit an entry.

        The first entry's is taken from what the header held before it: the end of the file before
        this one, or nothing.
        """
        begin = self.header.begin_timestamp
        diffs = seconds_since(begin, store_timestamp)
        if self.header.index_count == 1:
            diffs[1:] = seconds_since(int(store_timestamp[0]), store_timestamp[1:])
        return diffs

    def publish(self) -> None:
        """Write what readers start from. Cheap where nothing changed.

        The header goes last, as in RocketMQ: what it says is in the index is found then, also by
        other processes. Slots ahead of it name entries that are there.
        """
        pages = np.flatnonzero(self._dirty)
        if len(pages):
            cuts = np.flatnonzero(np.diff(pages) > 1)
            slots = memoryview(self._slots.view(np.uint8))
            begins = pages[np.concatenate(([0], cuts + 1))] << _PAGE_BITS
            ends = (pages[np.append(cuts, len(pages) - 1)] + 1) << _PAGE_BITS
            for begin, end in zip(begins.tolist(), ends.tolist()):
                first = max(begin - INDEX_HEADER.size, 0)
                part = slots[first : end - INDEX_HEADER.size]
                self._write(part, first + INDEX_HEADER.size)
            self._dirty[pages] = False
        self._write(INDEX_HEADER.pack(**self.header._asdict()), 0)

    def sync(self) -> None:
        """Wait until all that was published is on disk.

        Raises
        ------
        OSError
            It failed, now or before: Linux takes pages that it failed to write for clean, so a
            second try could succeed and mean nothing.
        """
        if self._sync_failure is not None:
            raise OSError(*self._sync_failure)
        try:
            sync_data(self._descriptor)
        except OSError as err:
            self._sync_failure = (err.errno, err.strerror, str(self.path))
            raise OSError(*self._sync_failure) from err

    def _write(self, data: bytes | memoryview, at: int) -> None:
        try:
            write_all(self._descriptor, at, memoryview(data))
        except OSError as err:
            err.filename = str(self.path)  # a descriptor has no name
            raise

    def close(self) -> None:
        """Close the file; entries that were not published are not found."""
        os.close(self._descriptor)


def _grouped(slot: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
    """Return rows in order of slot and row, and where each slot's rows begin.

    Numbers made of slot and row are all distinct, so that any sort is a stable one: a fifth of the
    time of numpy's stable sort.
    """
    # Rows [0, 1, 2] of slots [4, 9, 4] are packed as 4.0 9.1 4.2, sorted 4.0 4.2 9.1:
    # rows [0, 2, 1], and the rows of a slot begin at [0, 2].
    packed = (slot << _ROW_BITS) | rows
    packed.sort()
    ordered = packed >> _ROW_BITS
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return packed & ((1 << _ROW_BITS) - 1), first


def seconds_since(begin_ms: int, times_ms: Int64s) -> Int64s:
    """Return what entries say of store times, in a file that begins with a time."""
    if begin_ms <= 0:
        return np.zeros(len(times_ms), np.int64)
    # Before the begin it is 0, so that rounding down equals Java's rounding towards zero.
    return np.clip((times_ms - begin_ms) // 1000, 0, _INT32_MAX)
