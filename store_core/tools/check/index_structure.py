"""Check one index file by itself: header, slots, chains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.layout.index import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes
from store_core.tools.check.finding_kinds import FindingKind

if TYPE_CHECKING:
    from typing import Callable

    from store_core.index.index_file import IndexFile
    from store_core.tools.check.findings import Findings

_CHUNK_ENTRIES = 1 << 18


def entry_position(file: IndexFile, entry: int) -> int:
    """Return where an entry lies in its file."""
    return index_file_bytes(file.max_hash_slot_num, 0) + entry * INDEX_ENTRY.size


def misplaced_ends(file: IndexFile) -> list[str]:
    """Return what the header says of the first and the last entry, and is not so."""
    header, wrong = file.header, []
    if header.entry_count > 0:
        first = int(file.entries(1, 2)["commit_log_offset"][0])
        last = int(file.entries(header.entry_count)["commit_log_offset"][0])
        if first != header.begin_phy_offset:
            wrong.append(f"begin {header.begin_phy_offset}, but the first entry has {first}")
        if last != header.end_phy_offset:
            wrong.append(f"end {header.end_phy_offset}, but the last entry has {last}")
    return wrong


class IndexStructure:
    """Walks all entries of a file once; 5 bytes an entry and the slots are held meanwhile.

    Every chain ends if each link leads to an older entry; every entry is found if each is named
    exactly once, by its slot or by a newer entry of the same slot.
    """

    def __init__(self, file: IndexFile, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self.is_ordered = True

    def run(self) -> None:
        """Check the file."""
        file, count = self._file, self._file.header.index_count
        slots = file.max_hash_slot_num
        newest = file.slots()
        used = np.flatnonzero(newest)
        heads = newest[used]
        good = (heads > 0) & (heads < count)
        self._chain(
            used[~good], self._slot_at, lambda s: f"slot {s} names entry {newest[s]} of {count - 1}"
        )
        used, heads = used[good], heads[good]
        slot_of = np.full(count, -1, np.int32)
        linked = np.zeros(count, bool)
        linked[0] = True
        before = np.iinfo(np.int64).min
        for start in range(1, count, _CHUNK_ENTRIES):
            chunk = file.entries(start, start + _CHUNK_ENTRIES)
            before = self._order(chunk, start, before)
            slot_of[start : start + len(chunk)] = np.where(
                chunk["key_hash"] < 0, -1, chunk["key_hash"] % np.int32(slots)
            )
            self._links(chunk, start, slot_of, linked)
        strange = slot_of[heads] != used
        self._chain(
            used[strange],
            self._slot_at,
            lambda s: (
                f"slot {s} names entry {newest[s]}, which belongs to slot {slot_of[newest[s]]}"
            ),
        )
        linked[heads[~strange]] = True
        self._chain(np.flatnonzero(~linked), self._entry_at, lambda e: f"entry {e} is in no chain")
        self._header()

    def _links(self, chunk: Any, start: int, slot_of: Any, linked: Any) -> None:
        previous = chunk["previous_entry"]
        number = np.arange(start, start + len(chunk))
        inside = (previous >= 0) & (previous < number)
        target = np.where(inside, previous, 0)
        same = (target == 0) | (slot_of[target] == slot_of[number])
        bad = ~(inside & same)
        self._chain(
            number[bad],
            self._entry_at,
            lambda e: f"entry {e} names {previous[e - start]} as the one before it",
        )
        linked[target[~bad]] = True

    def _order(self, chunk: Any, start: int, before: int) -> int:
        offsets = chunk["commit_log_offset"]
        ahead = np.concatenate([[before], offsets[:-1]])
        back = np.flatnonzero(offsets < ahead)
        if len(back):
            self.is_ordered = False
            self._findings.add(
                FindingKind.INDEX_ENTRY,
                self._file.path,
                position=entry_position(self._file, start + int(back[0])),
                commit_log_offset=int(offsets[back[0]]),
                count=len(back),
                examples=[
                    f"entry {start + at} points at {offsets[at]}, the one before at {ahead[at]}"
                    for at in back[:5].tolist()
                ],
            )
        return int(offsets[-1])

    def _slot_at(self, slot: int) -> int:
        return INDEX_HEADER.size + slot * INDEX_SLOT.size

    def _entry_at(self, entry: int) -> int:
        return entry_position(self._file, entry)

    def _chain(self, numbers: Any, place: Callable[[int], int], text: Any) -> None:
        if len(numbers):
            self._findings.add(
                FindingKind.INDEX_CHAIN,
                self._file.path,
                position=place(int(numbers[0])),
                count=len(numbers),
                examples=[text(number) for number in numbers[:5].tolist()],
            )

    def _header(self) -> None:
        file, header = self._file, self._file.header
        wrong = misplaced_ends(file)  # its times may run backwards, as clocks do
        if not file.has_all_slots():
            wrong.append(f"fewer than {header.hash_slot_count} slots are in use")
        if wrong:
            self._findings.add(FindingKind.INDEX_HEADER, file.path, position=0, examples=wrong)
