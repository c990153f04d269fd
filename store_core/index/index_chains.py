"""Whether an index file holds all that inserting its entries one by one would have left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.index.index_file import IndexFile

    Int32s = npt.NDArray[np.int32]

_CHUNK_ENTRIES = 1 << 17


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
