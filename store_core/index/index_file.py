# SPDX-License-Identifier: Apache-2.0
"""Index files: from the hash of ``topic#key`` to offsets of the log; their slots and entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.arrow import pa
from store_core.codec.java_string import string_hash, string_hashes
from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import CorruptRecordError, StoreConfigError, StoreReadError
from store_core.files.byte_source import last_nonzero
from store_core.layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    MOST_INDEX_FILE_BYTES,
    TAG_TYPE,
    index_file_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import FileEntry, StoreDirectory

    Int32s = npt.NDArray[np.int32]
    Int64s = npt.NDArray[np.int64]

NATIVE_INDEX_ENTRY = INDEX_ENTRY.dtype.newbyteorder("=")
_MAX_HOPS = 2048
"""Instead of longer chains all entries are read: 20 bytes each at GB/s beat a hop of 50 us."""
_SCAN_ENTRIES = 1 << 18
_PAGE_BYTES = 1 << 12
_FEW_HASHES = 16
_BECAME_SHORTER = "the file became shorter"
INDEX_SIZE_OPTIONS = "options maxHashSlotNum and maxIndexNum"
_DEFAULT_BYTES = index_file_bytes(DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM)
_MOST_NUMBERS = 1 << 31
_CHUNK_ENTRIES = 1 << 17


def key_hash(topic: str, key: str) -> int:
    """Return the hash stored for a key (``IndexFile.indexKeyHashMethod``, RocketMQ 5.3.3)."""
    value = abs(string_hash(f"{topic}#{key}"))
    return 0 if value >> 31 else value  # of Java's least number there is no magnitude


def tag_hash(topic: str, tags: str) -> int:
    """Return the hash stored for the tags of a message (``IndexService.buildKey``, 5.5.1)."""
    return key_hash(f"{topic}#{TAG_TYPE}", tags)


def key_hashes(topic: str, keys: Sequence[str]) -> Int32s:
    """Return `key_hash` of many keys of one topic."""
    if len(keys) <= _FEW_HASHES:
        return np.array([key_hash(topic, key) for key in keys], np.int32)
    try:
        hashes = string_hashes(pa.array([f"{topic}#{key}" for key in keys], pa.string()))
    except UnicodeEncodeError:  # a lone surrogate, which Java strings may contain
        return np.array([key_hash(topic, key) for key in keys], np.int32)
    lowest = np.iinfo(np.int32).min  # its absolute value does not fit; Java's code makes it 0
    return np.abs(np.where(hashes == lowest, 0, hashes))


class IndexHeader(NamedTuple):
    """Header of a file; fields as in ``INDEX_HEADER``."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int

    @property
    def entry_count(self) -> int:
        """Entries in the file; they are numbered from 1 on."""
        return self.index_count - 1


class IndexHits(NamedTuple):
    """Entries with one of the requested hashes, by key, newest first, as parallel columns."""

    key: Int64s
    """Index of the requested hash."""
    commit_log_offset: Int64s
    entry: Int64s
    time_diff_seconds: Int64s


def read_index_header(source: ByteSource) -> IndexHeader:
    """Read the header of an index file and make the checks that do not need its sizes.

    Raises
    ------
    CorruptRecordError
        The file is shorter than a header, or longer than any index file, or its numbers contradict
        each other.
    """
    if source.size > MOST_INDEX_FILE_BYTES:  # usually sparse: searching for its end takes minutes
        text = f"{source.size} bytes long; an index file has {MOST_INDEX_FILE_BYTES} at most"
        raise CorruptRecordError(text, source.path, MOST_INDEX_FILE_BYTES)
    data = source.read_at(0, INDEX_HEADER.size)
    if len(data) < INDEX_HEADER.size:
        raise CorruptRecordError("the file is shorter than a header", source.path, len(data))
    header = IndexHeader(*INDEX_HEADER.unpack(data))
    if header.index_count <= 0:  # IndexHeader.load does the same
        header = header._replace(index_count=1)
    if not 0 <= header.begin_phy_offset <= header.end_phy_offset:
        raise CorruptRecordError(
            f"offsets from {header.begin_phy_offset} to {header.end_phy_offset} are impossible",
            source.path,
            INDEX_HEADER.at("begin_phy_offset"),
        )
    return header


class IndexFile:
    """One index file: filled from the front, then never changed; it can be rebuilt.

    Parameters
    ----------
    source
        The open file; the caller closes it.

    Raises
    ------
    CorruptRecordError
        Length or header do not fit these numbers.
    """

    def __init__(self, source: ByteSource, max_hash_slot_num: int, max_index_num: int) -> None:
        self.source = source
        self.path = source.path
        self.max_hash_slot_num = max_hash_slot_num
        self.max_index_num = max_index_num
        self.header = read_index_header(source)
        expected = index_file_bytes(max_hash_slot_num, max_index_num)
        if source.size != expected:
            text = (
                f"{source.size} bytes long; with maxHashSlotNum and maxIndexNum it should have "
                f"{expected}"
            )
            raise CorruptRecordError(text, self.path, source.size)
        if self.header.index_count > max_index_num:
            raise CorruptRecordError(
                f"{self.header.index_count} entries in a file with room for {max_index_num}",
                self.path,
                INDEX_HEADER.at("index_count"),
            )

    def entries(self, start: int = 1, stop: int | None = None) -> npt.NDArray[np.void]:
        """Return the entries ``[start, stop)`` as a native array; the first is number 1."""
        return self.table(start, stop).astype(NATIVE_INDEX_ENTRY)

    def table(self, start: int = 1, stop: int | None = None) -> npt.NDArray[np.void]:
        """Return `entries` as a view of the file, in its byte order."""
        end = self.header.index_count if stop is None else min(stop, self.header.index_count)
        return self._table(max(start, 1), end)

    def slots(self) -> Int32s:
        """Return the number of the newest entry of every slot; 0 = empty."""
        view = self.source.view(INDEX_HEADER.size, self.max_hash_slot_num * INDEX_SLOT.size)
        return INDEX_SLOT.table(view)["newest_entry"].astype(np.int32)

    def has_all_slots(self) -> bool:
        """Return whether as many slots are in use as there should be; lost ones would hide entries.

        Up to 4.7.0 the header counts entries instead of slots, which proves nothing. In a file that
        such a release began and a later one continued, it counts some of both: then the slots that
        the entries need count. A file being written has at least as many as its header says.
        """
        expected, entries = self.header.hash_slot_count, self.header.entry_count
        if expected == entries:
            return True
        view = self.source.view(INDEX_HEADER.size, self.max_hash_slot_num * INDEX_SLOT.size)
        used = int(np.count_nonzero(INDEX_SLOT.table(view)["newest_entry"]))
        return used >= expected or (expected < entries and used >= self._slots_of_entries())

    def _slots_of_entries(self) -> int:
        """Return how many slots the keys of all entries need."""
        needed = np.zeros(self.max_hash_slot_num, bool)
        for start in range(1, self.header.index_count, _SCAN_ENTRIES):
            hashes = self.table(start, start + _SCAN_ENTRIES)["key_hash"].astype(np.int32)
            needed[hashes % np.int32(self.max_hash_slot_num)] = True
        return int(np.count_nonzero(needed))

    def has_pages_of(self, hashes: Int32s) -> bool:
        """Return whether the pages of a few slots were written: none is all zeros.

        With few slots in use a page may be all zeros anyway. False for more than a few hashes.
        """
        if len(hashes) > _FEW_HASHES:
            return False
        at = INDEX_HEADER.size + hashes.astype(np.int64) % self.max_hash_slot_num * INDEX_SLOT.size
        end = INDEX_HEADER.size + self.max_hash_slot_num * INDEX_SLOT.size
        for start in np.unique(at // _PAGE_BYTES).tolist():
            first = max(start * _PAGE_BYTES, INDEX_HEADER.size)
            if not any(self.source.read_at(first, min((start + 1) * _PAGE_BYTES, end) - first)):
                return False
        return True

    def lookup(self, hashes: Int32s) -> IndexHits:
        """Find the entries of many hashes: all chains advance together.

        Times are ignored: they are rounded, and wrong in rolled files.

        Raises
        ------
        CorruptRecordError
            A chain leads out of the file, forward, or to an entry of another slot.
        """
        distinct, which = np.unique(hashes, return_inverse=True)
        return _by_key(self.hits(distinct), which.ravel(), len(distinct))

    def hits(self, hashes: Int32s) -> IndexHits:
        """Return the hits of `lookup`, in no order; a hash may be given twice."""
        if len(hashes) <= _FEW_HASHES and self.source.is_local:
            return self._hits_of_few(hashes)
        return self._hits_of_many(hashes)

    def _hits_of_few(self, hashes: Int32s) -> IndexHits:
        """Follow one chain after the other: for few of them NumPy's calls take longest."""
        found: list[tuple[int, int, int, int]] = []
        for key, wanted in enumerate(hashes.tolist()):
            hits = self._chain_hits(wanted, key)
            if hits is None:
                return self._hits_of_many(hashes)
            found += hits
        columns = np.array(found, np.int64).reshape(-1, len(IndexHits._fields)).T
        return IndexHits(*np.ascontiguousarray(columns))

    def _chain_hits(self, wanted: int, key: int) -> list[tuple[int, int, int, int]] | None:
        """Return the rows of `IndexHits` of one hash; None if its chain is too long."""
        slots = self.max_hash_slot_num
        at = self._checked_newest(wanted, self._newest_of(wanted))
        found: list[tuple[int, int, int, int]] = []
        for _ in range(_MAX_HOPS):
            if at <= 0:
                return found
            row = self._entry(at)
            if row.key_hash % slots != wanted % slots or self._is_strange(row, at):
                raise self._foreign(at, row)
            if row.key_hash == wanted:
                found.append((key, row.commit_log_offset, at, row.time_diff_seconds))
            at = row.previous_entry
        return None

    def _is_strange(self, row: Any, at: int) -> bool:
        """Return whether the entry at a number cannot be part of any chain."""
        least = max(self.header.end_phy_offset, 1) if at >= self.header.index_count else 0
        return row.key_hash < 0 or row.commit_log_offset < least or not 0 <= row.previous_entry < at

    def _hits_of_many(self, hashes: Int32s) -> IndexHits:
        """Follow all chains together."""
        pending = np.arange(len(hashes))
        entry = self._newest_entries(hashes)
        found = []
        for _ in range(_MAX_HOPS):
            alive = entry > 0
            pending, entry = pending[alive], entry[alive]
            if not len(pending):
                break
            rows = self._chain_entries(hashes[pending], entry)
            match = rows["key_hash"] == hashes[pending]
            found.append(_hits(pending[match], rows[match], entry[match]))
            entry = rows["previous_entry"].astype(np.int64)
        else:
            is_done = np.ones(len(hashes), bool)
            is_done[pending] = False
            found = [_hits_at(hits, is_done[hits.key]) for hits in found]
            found.append(self._scan(hashes, pending))
        return _joined(found)

    def select_phy_offset(self, hash_of_key: int, max_num: int, begin: int, end: int) -> list[int]:
        """Return the offsets of a hash, newest first, with RocketMQ's limits (``selectPhyOffset``).

        Times in ms, inclusive, compared with the entry's rounded time; a chain stops at the first
        entry older than ``begin``.

        Raises
        ------
        CorruptRecordError
            A chain leads forward (RocketMQ would never return).
        """
        offsets: list[int] = []
        at = self._newest_of(hash_of_key)
        count = self._count_with(at)
        while count < at < self.max_index_num:  # not counted yet: the writer links it before that
            at = min(self._entry(at).previous_entry, at - 1)
        if at <= 0 or at > count or count <= 1:
            return offsets
        while len(offsets) < max_num and at < self.max_index_num:
            row = self._entry(at)
            if row.time_diff_seconds < 0:
                break
            time = self.header.begin_timestamp + row.time_diff_seconds * 1000
            if row.key_hash == hash_of_key and begin <= time <= end:
                offsets.append(row.commit_log_offset)
            before = row.previous_entry
            if before <= 0 or before > count or before == at or time < begin:
                break
            if before > at:
                raise self._corrupt(at, f"the chain leads forward to entry {before}")
            at = before
        return offsets

    def _position(self, entry: int) -> int:
        return index_file_bytes(self.max_hash_slot_num, 0) + entry * INDEX_ENTRY.size

    def _table(self, start: int, stop: int) -> npt.NDArray[np.void]:
        view = self.source.view(self._position(start), max(0, stop - start) * INDEX_ENTRY.size)
        return INDEX_ENTRY.table(view)

    def _newest(self, hashes: npt.NDArray[Any]) -> Int64s:
        starts = INDEX_HEADER.size + hashes.astype(np.int64) % self.max_hash_slot_num * 4
        raw: Any = self.source.gather(starts, INDEX_SLOT.size)
        newest: Int64s = raw.view(">i4")[:, 0].astype(np.int64)
        return newest

    def _newest_of(self, hash_of_key: int) -> int:
        at = INDEX_HEADER.size + hash_of_key % self.max_hash_slot_num * INDEX_SLOT.size
        raw = self.source.read_at(at, INDEX_SLOT.size)
        if len(raw) < INDEX_SLOT.size:
            raise CorruptRecordError(_BECAME_SHORTER, self.path, at)
        return int.from_bytes(raw, "big", signed=True)

    def _entry(self, number: int) -> Any:
        raw = self.source.read_at(self._position(number), INDEX_ENTRY.size)
        if len(raw) < INDEX_ENTRY.size:
            raise self._corrupt(number, _BECAME_SHORTER)
        return INDEX_ENTRY.unpack(raw)

    def _count_with(self, newest: int) -> int:
        """Return the index count, read again if a slot is ahead, as a broker may be writing."""
        if newest < self.header.index_count:
            return self.header.index_count
        return min(read_index_header(self.source).index_count, self.max_index_num)

    def _newest_entries(self, hashes: Int32s) -> Int64s:
        newest = self._newest(hashes)
        bad = np.flatnonzero((newest < 0) | (newest >= self.max_index_num))
        if len(bad):
            self._checked_newest(int(hashes[bad[0]]), int(newest[bad[0]]))
        return newest

    def _checked_newest(self, hash_of_key: int, newest: int) -> int:
        """Return the number in the slot of a hash; raise if no entry can have it."""
        if 0 <= newest < self.max_index_num:
            return newest
        slot = hash_of_key % self.max_hash_slot_num
        raise CorruptRecordError(
            f"slot {slot} points to entry {newest} of {self.header.entry_count}",
            self.path,
            INDEX_HEADER.size + slot * INDEX_SLOT.size,
        )

    def _chain_entries(self, hashes: Int32s, entry: Int64s) -> npt.NDArray[np.void]:
        raw: Any = self.source.gather(
            self._position(0) + entry * INDEX_ENTRY.size, INDEX_ENTRY.size
        )
        rows: npt.NDArray[np.void] = raw.view(INDEX_ENTRY.dtype)[:, 0].astype(NATIVE_INDEX_ENTRY)
        slots = self.max_hash_slot_num
        strange = (rows["key_hash"] < 0) | (rows["key_hash"] % slots != hashes % slots)
        strange |= rows["commit_log_offset"] < 0
        strange |= (rows["previous_entry"] < 0) | (rows["previous_entry"] >= entry)
        # A writer links an entry into its slot before incrementing the header's count.
        is_ahead = entry >= self.header.index_count
        strange |= is_ahead & (rows["commit_log_offset"] < max(self.header.end_phy_offset, 1))
        bad = np.flatnonzero(strange)
        if len(bad):
            raise self._foreign(int(entry[bad[0]]), rows[bad[0]].tolist())
        return rows

    def _scan(self, hashes: Int32s, wanted: Int64s) -> IndexHits:
        """Find the entries of some of the hashes without following chains."""
        found = []
        asked, which = np.unique(hashes[wanted], return_inverse=True)
        for start in range(1, self.header.index_count, _SCAN_ENTRIES):
            stop = min(start + _SCAN_ENTRIES, self.header.index_count)
            table = self._table(start, stop)
            of_table = table["key_hash"].astype(np.int32)
            rows = np.flatnonzero(np.isin(of_table, asked))
            found.append(_hits(np.searchsorted(asked, of_table[rows]), table[rows], rows + start))
        hits = _by_key(_joined(found), which.ravel(), len(asked))
        return hits._replace(key=wanted[hits.key])

    def _foreign(self, entry: int, row: tuple[int, ...]) -> CorruptRecordError:
        return self._corrupt(entry, f"the entry {tuple(row)} does not belong to its chain")

    def _corrupt(self, entry: int, text: str) -> CorruptRecordError:
        return CorruptRecordError(f"entry {entry}: {text}", self.path, self._position(entry))


def _hits(key: Int64s, rows: npt.NDArray[np.void], entry: Int64s) -> IndexHits:
    return IndexHits(
        key,
        rows["commit_log_offset"].astype(np.int64),
        entry,
        rows["time_diff_seconds"].astype(np.int64),
    )


def _hits_at(hits: IndexHits, rows: Any) -> IndexHits:
    return IndexHits(*(column[rows] for column in hits))


def _joined(parts: Sequence[IndexHits]) -> IndexHits:
    empty = np.empty(0, np.int64)
    return (
        IndexHits(*(np.concatenate([empty, *columns]) for columns in zip(*parts)))
        if parts
        else (IndexHits(empty, empty, empty, empty))
    )


def _by_key(hits: IndexHits, which: Int64s, distinct_count: int) -> IndexHits:
    """Sort hits by key, newest first, and repeat them for hashes that were requested twice."""
    # Hits of keys [0, 1, 0] with entries [5, 6, 7] become keys [0, 0, 1], entries [7, 5, 6].
    # Requested were keys which = [1, 0, 1], so bounds = [0, 2, 3], and counts = [1, 2, 1].
    # The hits to repeat are [2, 0, 1, 2]: entries [6, 7, 5, 6] for the requests [0, 1, 1, 2].
    hits = _hits_at(hits, np.lexsort((-hits.entry, hits.key)))
    bounds = np.searchsorted(hits.key, np.arange(distinct_count + 1))
    counts = np.diff(bounds)[which]
    key = np.repeat(np.arange(len(which)), counts)
    first = np.repeat(bounds[:-1][which] - (np.cumsum(counts) - counts), counts)
    return _hits_at(hits, first + np.arange(len(key)))._replace(key=key)


def infer_sizes(source: ByteSource) -> tuple[int, int] | None:
    """Return ``(max_hash_slot_num, max_index_num)`` of a file if its content proves them.

    The last nonzero byte is in the last entry, whose number is in the header; that leaves one
    position where entries can begin, since the file's length fixes it modulo 20. It counts only if
    slots and entries then fit each other (`is_whole`).
    None for files without entries, with damage, or in which a live broker is inserting.
    """
    try:
        header = read_index_header(source)
    except CorruptRecordError:
        return None
    last_byte = last_nonzero(source) if header.entry_count > 0 else -1
    if last_byte < INDEX_HEADER.size:
        return None
    # entry 0 begins at `begin`, a multiple of 4; the last entry contains the last byte
    newest = last_byte - header.entry_count * INDEX_ENTRY.size
    begin = newest - (newest - source.size) % INDEX_ENTRY.size
    slots, rest = divmod(begin - INDEX_HEADER.size, INDEX_SLOT.size)
    entries = (source.size - begin) // INDEX_ENTRY.size
    if slots < 1 or rest or header.entry_count >= entries:
        return None
    try:
        file = IndexFile(source, slots, entries)
    except CorruptRecordError:  # its header has changed: a broker inserts
        return None
    return (slots, entries) if is_whole(file) else None


def resolve_sizes(
    directory: StoreDirectory, entries: Collection[FileEntry], config: MessageStoreConfig
) -> tuple[int, int] | None:
    """Return slots and entries of a store's index files; all of them share these.

    As configured, else RocketMQ's defaults if a length is theirs, else as proved; None if unknown.

    Raises
    ------
    StoreConfigError
        No file has the configured size, and the content of one proves another.
    """
    lengths = {entry.size for entry in entries}
    given = _given_sizes(config, lengths)
    if given is not None and index_file_bytes(*given) in lengths:
        return given
    if config.max_hash_slot_num is None and config.max_index_num is None:
        if _DEFAULT_BYTES in lengths:
            return DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
        return _proved_sizes(directory, entries)
    proved = _proved_sizes(directory, entries)
    if proved is not None:
        raise StoreConfigError(
            f"index files have maxHashSlotNum={proved[0]} and maxIndexNum={proved[1]}, but the "
            f"configuration says maxHashSlotNum={config.max_hash_slot_num}, "
            f"maxIndexNum={config.max_index_num}"
        )
    return given


def _given_sizes(config: MessageStoreConfig, lengths: Collection[int]) -> tuple[int, int] | None:
    slots, entries = config.max_hash_slot_num, config.max_index_num
    if slots is not None and entries is not None:
        return slots, entries
    for length in sorted(lengths, reverse=True):
        if slots is not None:
            count, rest = divmod(length - index_file_bytes(slots, 0), INDEX_ENTRY.size)
            if 0 < count < _MOST_NUMBERS and rest == 0:
                return slots, count
        elif entries is not None:
            count, rest = divmod(length - index_file_bytes(0, entries), INDEX_SLOT.size)
            if 0 < count < _MOST_NUMBERS and rest == 0:
                return count, entries
    return None


def _proved_sizes(
    directory: StoreDirectory, entries: Collection[FileEntry]
) -> tuple[int, int] | None:
    """Infer the sizes, which all files share, from one of them; those with most entries first."""
    counted = []
    for entry in entries:
        try:
            with directory.open(entry.path) as source:
                counted.append((read_index_header(source).index_count, entry.path))
        except (CorruptRecordError, StoreReadError):
            continue
    for _, path in sorted(counted, reverse=True):
        with directory.open(path) as source:
            sizes = infer_sizes(source)
        if sizes is not None:
            return sizes
    return None


def is_whole(file: IndexFile) -> bool:
    """Return whether slots, chains, order of entries and the header's offsets all fit each other.

    That is so if every link leads back within its slot, and every entry is linked to exactly once,
    by a later entry or by its slot: then each slot has one descending chain of all its entries.
    A page that a loss of power left unwritten breaks a chain or the order: it contains zeros, or
    old slots. Files without entries prove nothing.

    Parameters
    ----------
    file
        An index file; the check takes 5 bytes of memory per entry and 4 per slot.
    """
    header, newest = file.header, file.slots()
    if header.entry_count < 1 or not file.has_all_slots():
        return False
    slot_of = np.empty(header.index_count, np.int32)
    linked = np.zeros(header.index_count, bool)
    linked[0] = True  # there is no entry 0
    slot_of[0] = -1
    links, before = 0, header.begin_phy_offset
    for start, key_hash, offsets, previous in _chunks(file):
        if key_hash.min() < 0 or offsets[0] < before or (offsets[1:] < offsets[:-1]).any():
            return False
        if start == 1 and offsets[0] != before:
            return False
        before = int(offsets[-1])
        slot_of[start : start + len(key_hash)] = key_hash % np.int32(file.max_hash_slot_num)
        rows = np.flatnonzero(previous)
        target = previous[rows]
        rows += start
        if (target < 0).any() or (target >= rows).any() or (slot_of[target] != slot_of[rows]).any():
            return False
        linked[target] = True
        links += len(rows)
    used = np.flatnonzero(newest)
    heads = newest[used]
    if heads.min(initial=0) < 0 or heads.max(initial=0) > header.entry_count:
        return False
    linked[heads] = True
    return bool(
        links + len(used) == header.entry_count
        and linked.all()
        and (slot_of[heads] == used).all()
        and before == header.end_phy_offset
    )


def _chunks(
    file: IndexFile,
) -> Iterator[tuple[int, Int32s, npt.NDArray[np.int64], Int32s]]:
    """Yield (first number, hashes, offsets, previous entries of the chain), some at a time."""
    for start in range(1, file.header.index_count, _CHUNK_ENTRIES):
        rows = file.table(start, start + _CHUNK_ENTRIES)
        yield (
            start,
            rows["key_hash"].astype(np.int32),
            rows["commit_log_offset"].astype(np.int64),
            rows["previous_entry"].astype(np.int32),
        )
