"""Slots and entries of an index file, found from its content (they are not written in it)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.errors import CorruptRecordError
from store_core.index_file import IndexFile, read_index_header
from store_core.layout.index import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.byte_source import ByteSource

_CHUNK_BYTES = 1 << 22
_CHUNK_ENTRIES = 1 << 18


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
    last_byte = _last_nonzero(source)
    if header.entry_count < 1 or last_byte < INDEX_HEADER.size:
        return None
    # entry 0 begins at `begin`, a multiple of 4; the last entry holds the last byte
    newest = last_byte - header.entry_count * INDEX_ENTRY.size
    begin = newest - (newest - source.size) % INDEX_ENTRY.size
    slots, rest = divmod(begin - INDEX_HEADER.size, INDEX_SLOT.size)
    entries = (source.size - begin) // INDEX_ENTRY.size
    if slots < 1 or rest or header.entry_count >= entries:
        return None
    return (slots, entries) if _is_proven(IndexFile(source, slots, entries)) else None


def _last_nonzero(source: ByteSource) -> int:
    stop = source.size
    while stop > 0:
        start = max(0, stop - _CHUNK_BYTES)
        chunk = source.view(start, stop - start)
        if chunk.any():
            return start + int(np.flatnonzero(chunk)[-1])
        source.forget(start, stop - start)
        stop = start
    return -1


def _is_proven(file: IndexFile) -> bool:
    """Tell whether slots and entries are what inserting the entries in order would give.

    That is so if every link leads back within its slot and every entry is linked to exactly once
    (by a later entry or by its slot): then each slot has one descending chain of all its entries.
    """
    header = file.header
    raw = file.entries()
    offsets = raw["commit_log_offset"]
    if offsets[0] != header.begin_phy_offset or offsets[-1] != header.end_phy_offset:
        return False
    newest = file.slots()
    used = np.flatnonzero(newest)
    linked = np.zeros(header.index_count, bool)
    slot_of = np.zeros(header.index_count, np.int32)
    for start in range(0, len(raw), _CHUNK_ENTRIES):
        chunk = raw[start : start + _CHUNK_ENTRIES]
        if not _is_plausible(chunk, start + 1):
            return False
        np.remainder(
            chunk["key_hash"],
            np.int32(file.max_hash_slot_num),
            out=slot_of[start + 1 : start + 1 + len(chunk)],
        )
        previous = chunk["previous_entry"]
        has_previous = previous > 0
        own = slot_of[start + 1 : start + 1 + len(chunk)]
        if (slot_of[previous] != own)[has_previous].any():
            return False
        linked[previous] = True
        used_links = int(np.count_nonzero(has_previous))
        header_links = used_links
        del header_links
    heads = newest[used]
    if len(heads) == 0 or heads.min() < 0 or heads.max() > header.entry_count:
        return False
    linked[heads] = True
    return bool((slot_of[heads] == used).all() and linked[1:].all() and _links(raw, used))


def _is_plausible(chunk: npt.NDArray[np.void], first_entry: int) -> bool:
    offsets: Any = chunk["commit_log_offset"]
    previous: Any = chunk["previous_entry"]
    number = np.arange(first_entry, first_entry + len(chunk), dtype=np.int32)
    return bool(
        (chunk["key_hash"] >= 0).all()
        and (previous >= 0).all()
        and (previous < number).all()
        and (offsets[1:] >= offsets[:-1]).all()
    )


def _links(raw: npt.NDArray[np.void], used: npt.NDArray[Any]) -> bool:
    # as many links as entries, and every entry linked: so each exactly once
    return int(np.count_nonzero(raw["previous_entry"])) + len(used) == len(raw)
