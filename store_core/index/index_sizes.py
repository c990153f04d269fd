"""Slots and entries of an index file, found from its content (they are not written in it)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.config.message_store_config import DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM
from store_core.errors import CorruptRecordError, StoreConfigError, StoreReadError
from store_core.files.byte_source import last_nonzero
from store_core.index.index_file import IndexFile, read_index_header
from store_core.layout.index import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.byte_source import ByteSource
    from store_core.files.store_directory import FileEntry, StoreDirectory

    Int32s = npt.NDArray[np.int32]

INDEX_SIZE_OPTIONS = "options maxHashSlotNum and maxIndexNum"
_DEFAULT_BYTES = index_file_bytes(DEFAULT_MAX_HASH_SLOT_NUM, DEFAULT_MAX_INDEX_NUM)
_MOST_NUMBERS = 1 << 31
_CHUNK_ENTRIES = 1 << 17


def infer_sizes(source: ByteSource) -> tuple[int, int] | None:
    """Return ``(max_hash_slot_num, max_index_num)`` of a file if its content proves them.

    The last byte that is not zero lies in the last entry, whose number is in the header; that
    leaves one place where entries can begin, since the file's length fixes it modulo 20. That
    place is believed only if chaining all entries anew gives exactly this slot table.
    None for files without entries, of a live broker in the middle of an insert, or with damage.
    """
    try:
        header = read_index_header(source)
    except CorruptRecordError:
        return None
    last_byte = last_nonzero(source) if header.entry_count > 0 else -1
    if last_byte < INDEX_HEADER.size:
        return None
    # entry 0 begins at `begin`, a multiple of 4; the last entry holds the last byte
    newest = last_byte - header.entry_count * INDEX_ENTRY.size
    begin = newest - (newest - source.size) % INDEX_ENTRY.size
    slots, rest = divmod(begin - INDEX_HEADER.size, INDEX_SLOT.size)
    entries = (source.size - begin) // INDEX_ENTRY.size
    if slots < 1 or rest or header.entry_count >= entries:
        return None
    try:
        file = IndexFile(source, slots, entries)
    except CorruptRecordError:  # its header is a later one: a broker inserts
        return None
    return (slots, entries) if is_whole(file) else None


def resolve_sizes(
    directory: StoreDirectory, entries: Collection[FileEntry], config: MessageStoreConfig
) -> tuple[int, int] | None:
    """Return slots and entries of a store's index files; all of them share these.

    As configured, else RocketMQ's defaults where a length is theirs, else proved; None: unknown.

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
            f"index files have maxHashSlotNum={proved[0]} and maxIndexNum={proved[1]}, but "
            f"maxHashSlotNum={config.max_hash_slot_num}, maxIndexNum={config.max_index_num} given"
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
    """Ask the files, the one with most entries first; all files of a store share their sizes."""
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
    A page that a loss of power left unwritten breaks a chain or the order: it holds zeros, or
    slots of before. Files without entries prove nothing.

    Parameters
    ----------
    file
        An index file; 5 bytes an entry and 4 bytes a slot are held meanwhile.
    """
    header, newest = file.header, file.slots()
    if header.entry_count < 1 or not file.has_all_slots():
        return False
    slot_of = np.empty(header.index_count, np.int32)
    linked = np.zeros(header.index_count, bool)
    linked[0] = True  # the entry that does not exist
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
    """Yield (number of the first, hashes, offsets, entries before in the chain), some at a time."""
    for start in range(1, file.header.index_count, _CHUNK_ENTRIES):
        rows = file.table(start, start + _CHUNK_ENTRIES)
        yield (
            start,
            rows["key_hash"].astype(np.int32),
            rows["commit_log_offset"].astype(np.int64),
            rows["previous_entry"].astype(np.int32),
        )
