# SPDX-License-Identifier: Apache-2.0
"""Check the index against the log: every entry finds its record, every key its entry."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.errors import CorruptRecordError, StoreReadError
from store_core.index.index_entries import index_entries, with_tag_index
from store_core.index.index_file import IndexFile
from store_core.layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, index_file_bytes
from store_core.state.store_state import StoreState
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread

if TYPE_CHECKING:
    from typing import Callable

    from store_core.codec.record_frames import RecordFrames
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings
    from store_core.tools.check.log_check import LogCheck

_CHUNK_ENTRIES = 1 << 18
_HASH_BITS = 31


class _Entries(NamedTuple):
    """Entries of one file, as parallel columns."""

    commit_log_offset: Any
    key_hash: Any
    entry: Any
    time_diff_seconds: Any


class _FileCursor:
    """Returns the entries of a file in log order, piece by piece."""

    def __init__(self, file: IndexFile, *, is_ordered: bool) -> None:
        self.file = file
        self._next = 1
        self._count = file.header.index_count
        self._held = _empty()
        if not is_ordered:  # damaged: loaded whole and sorted
            self._held = self._load(self._count)
            order = np.argsort(self._held.commit_log_offset, kind="stable")
            self._held = _Entries(*(column[order] for column in self._held))

    def below(self, commit_log_offset: int) -> _Entries:
        """Return the entries before an offset that have not been returned yet."""
        taken = []
        while True:
            if not len(self._held.entry):
                if self._next >= self._count:
                    break
                self._held = self._load(_CHUNK_ENTRIES)
            stop = int(np.searchsorted(self._held.commit_log_offset, commit_log_offset))
            taken.append(_Entries(*(column[:stop] for column in self._held)))
            self._held = _Entries(*(column[stop:] for column in self._held))
            if len(self._held.entry):
                break
        return _joined(taken)

    def _load(self, count: int) -> _Entries:
        stop = min(self._next + count, self._count)
        rows = self.file.entries(self._next, stop)
        numbers = np.arange(self._next, stop)
        self._next = stop
        hashes, seconds = (rows[n].astype(np.int64) for n in ("key_hash", "time_diff_seconds"))
        return _Entries(rows["commit_log_offset"], hashes, numbers, seconds)


def _empty() -> _Entries:
    return _Entries(*(np.empty(0, np.int64) for _ in _Entries._fields))


def _joined(parts: list[_Entries]) -> _Entries:
    if len(parts) == 1:
        return parts[0]
    return _Entries(*(np.concatenate(columns) for columns in zip(_empty(), *parts)))


def _codes(entries: Any, base: int) -> Any:
    """Return the place and hash of each entry as one number."""
    return ((entries.commit_log_offset - base) << _HASH_BITS) | entries.key_hash


def _counts_of(distinct: Any, codes: Any) -> Any:
    """Return how often each of some ascending numbers occurs among ``codes``."""
    ordered = np.sort(codes)
    return np.searchsorted(ordered, distinct, "right") - np.searchsorted(ordered, distinct)


class IndexCheck:
    """Checks each file by itself (`files`), then compares all with the log's records in order.

    Memory: one chunk of 262,144 entries a file, and 5 bytes an entry of the file being walked;
    files whose entries are out of order are loaded whole.
    """

    def __init__(
        self, snapshot: StoreSnapshot, log: LogCheck, findings: Findings, counts: CheckCounts
    ) -> None:
        self._snapshot, self._log = snapshot, log
        self._findings, self._counts = findings, counts
        self._cursors: list[_FileCursor] = []
        self._indexed_until = -1
        self._missing = 0
        self._missing_records = 0
        self._first_missing = -1
        self._examples: list[str] = []
        self._late = 0
        self._with_tags = bool(
            with_tag_index(snapshot.config, snapshot.directory, snapshot.log).tag_index_enable
        )
        self._untagged = 0
        self._first_untagged = -1
        self.is_known = True
        self._is_whole = True  # no file lacks read permission
        self._open = ExitStack()

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def files(self, progress: Callable[[int, int], None]) -> None:
        """Check every file by itself and open it for the comparison."""
        index = self._snapshot.index
        if index.sizes is None and index.unusable:
            self.is_known = False
            self._findings.add(
                FindingKind.INDEX_SIZES,
                examples=[f"{len(index.unusable)} index files, none of which proves its sizes"],
            )
            return
        if self._snapshot.kind.index_database:  # reported as not read
            self.is_known = False
            return
        for path, reason in index.unusable:
            self._unusable(path, reason)
        for number, (path, _) in enumerate(index.files):
            progress(number, len(index.files))
            self._file(path)
        progress(len(index.files), len(index.files))
        self._indexed_until = index.last_phy_offset() or -1

    def _unusable(self, path: str, reason: str) -> None:
        kind = FindingKind.INDEX_UNUSABLE
        try:
            self._snapshot.directory.open(path).close()
        except StoreReadError as err:
            kind = unread(err, kind)
        self._is_whole &= kind is not FindingKind.NO_PERMISSION
        self._findings.add(kind, path, examples=[reason])

    def _file(self, path: str) -> None:
        sizes = self._snapshot.index.sizes
        if sizes is None:
            return
        try:
            file = IndexFile(self._open.enter_context(self._snapshot.directory.open(path)), *sizes)
            structure = IndexStructure(file, self._findings)
            structure.run()
            cursor = _FileCursor(file, is_ordered=structure.is_ordered)
        except (CorruptRecordError, StoreReadError) as err:
            self._unusable(path, str(err))
            return
        self._cursors.append(cursor)
        self._counts.index_files += 1
        self._counts.index_entries += file.header.entry_count
        begin = max(self._snapshot.min_phy_offset, 0)
        self._counts.expired_index_entries += len(cursor.below(begin).entry)

    def check(self, frames: RecordFrames) -> None:
        """Compare the keys of a batch of records with the entries that point there."""
        if not self.is_known:
            return
        base = int(frames.column("commit_log_offset")[0])
        end = int(frames.column("commit_log_offset")[-1]) + 1
        for cursor in self._cursors:
            self._strays(cursor, cursor.below(base))
        found = [cursor.below(end) for cursor in self._cursors]
        for cursor, entries in zip(self._cursors, found):
            self._times(cursor, entries, frames)
        columns = MessageColumns(frames)
        codes = [_codes(entries, base) for entries in found]
        have = np.concatenate([np.empty(0, np.int64), *codes])
        wanted = _codes(index_entries(columns, with_tags=self._with_tags), base)
        if np.array_equal(wanted, have):
            return  # the usual case
        other = _codes(index_entries(columns, with_tags=not self._with_tags), base)
        if np.array_equal(other, have) and not self._with_tags:
            return
        keyed, tagged = (other, wanted) if self._with_tags else (wanted, other)
        self._compare(keyed, tagged, base, found, codes)

    def _compare(
        self, keyed: Any, tagged: Any, base: int, found: list[_Entries], codes: list[Any]
    ) -> None:
        """Compare entries with those that brokers write: for keys; from 5.4.0 on also for tags."""
        distinct, count = np.unique(tagged, return_counts=True)
        needed = _counts_of(distinct, keyed)
        got = _counts_of(distinct, np.concatenate([np.empty(0, np.int64), *codes]))
        short = np.maximum(needed - got, 0)
        self._note_missing((distinct[short > 0] >> _HASH_BITS) + base, short[short > 0])
        if self._with_tags:
            self._note_untagged((distinct[count > np.maximum(got, needed)] >> _HASH_BITS) + base)
        double = got - count
        self._note_double((distinct[double > 0] >> _HASH_BITS) + base, double[double > 0])
        for cursor, entries, code in zip(self._cursors, found, codes):
            place = np.searchsorted(distinct, code)
            known = np.zeros(len(code), bool)
            inner = place < len(distinct)
            known[inner] = distinct[place[inner]] == code[inner]
            if not known.all():
                self._strays(cursor, _Entries(*(column[~known] for column in entries)))

    def finish(self) -> None:
        """Check the entries after the last record, and report the totals."""
        for cursor in self._cursors:
            self._header_times(cursor.file)
            rest = cursor.below(np.iinfo(np.int64).max)
            self._strays(cursor, rest)
        if self._late:
            self._findings.add(
                FindingKind.NOT_INDEXED_YET, commit_log_offset=self._indexed_until, count=self._late
            )
        if self._untagged and self._is_whole:
            self._findings.add(
                FindingKind.NOT_FOUND_BY_TAG,
                commit_log_offset=self._first_untagged,
                count=self._untagged,
                examples=[f"the first: record at {self._first_untagged}"],
            )
        if self._missing and self._is_whole:
            self._findings.add(
                FindingKind.NOT_FOUND_BY_KEY,
                commit_log_offset=self._first_missing,
                count=self._missing_records,
                examples=[f"{self._missing} keys in total", *self._examples],
            )

    def _times(self, cursor: _FileCursor, entries: _Entries, frames: RecordFrames) -> None:
        """Compare the times of entries with those of the records at their places.

        An entry's time is in whole seconds since the file's begin timestamp. The first entry is not
        checked: it was written before the file had that timestamp (``IndexFile.putKey``).
        """
        if not len(entries.entry):
            return
        places = frames.column("commit_log_offset")
        at = np.searchsorted(places, entries.commit_log_offset)
        at = np.minimum(at, len(places) - 1)
        is_record = (places[at] == entries.commit_log_offset) & (entries.entry > 1)
        begin = cursor.file.header.begin_timestamp
        elapsed = frames.column("store_timestamp")[at].astype(np.int64) - begin
        seconds = np.where(begin > 0, np.clip(elapsed // 1000, 0, np.iinfo(np.int32).max), 0)
        wrong = is_record & (seconds != entries.time_diff_seconds)
        self._note(FindingKind.INDEX_TIME, cursor, entries, wrong)

    def _header_times(self, file: IndexFile) -> None:
        header = file.header
        if header.entry_count <= 0 or self._snapshot.state is StoreState.LIVE:
            return
        wrong = []
        for name in ("begin", "end"):
            offset, said = (
                getattr(header, f"{name}_phy_offset"),
                getattr(header, f"{name}_timestamp"),
            )
            if self._log.is_lost(np.array([offset])).any():
                continue
            time = self._snapshot.store_timestamp_at(offset)
            if time is not None and time != said:
                wrong.append(f"{name}_timestamp {said}; the record at {offset} has {time}")
        self._findings.add(
            FindingKind.INDEX_TIME, file.path, position=0, count=len(wrong), examples=wrong
        )

    def _note_missing(self, offsets: Any, short: Any) -> None:
        if self._snapshot.state is not StoreState.STOPPED:
            late = offsets >= self._indexed_until
            self._late += len(np.unique(offsets[late]))
            offsets, short = offsets[~late], short[~late]
        if not len(offsets):
            return
        self._missing += int(short.sum())
        records = np.unique(offsets)
        self._missing_records += len(records)
        if self._first_missing < 0:
            self._first_missing = int(records[0])
        self._examples += [f"record at {offset}" for offset in records[:4].tolist()]
        del self._examples[4:]

    def _note_untagged(self, offsets: Any) -> None:
        if self._snapshot.state is not StoreState.STOPPED:
            offsets = offsets[offsets < self._indexed_until]
        if len(offsets) and self._first_untagged < 0:
            self._first_untagged = int(offsets[0])
        self._untagged += len(offsets)

    def _note_double(self, offsets: Any, more: Any) -> None:
        if len(offsets):
            self._findings.add(
                FindingKind.INDEX_DOUBLE,
                commit_log_offset=int(offsets[0]),
                count=int(more.sum()),
                examples=[f"of the record at {at}" for at in np.unique(offsets)[:5].tolist()],
            )

    def _strays(self, cursor: _FileCursor, entries: _Entries) -> None:
        """Report why entries belong to no key of a readable record."""
        offsets = entries.commit_log_offset
        if not len(offsets):
            return
        behind = offsets >= self._snapshot.end_offset
        lost = self._log.is_lost(offsets)
        if self._snapshot.lost_end is not None:
            self._note(FindingKind.INDEX_OF_LOST_RECORD, cursor, entries, behind)
        elif self._snapshot.state is not StoreState.LIVE:
            self._note(FindingKind.INDEX_BEHIND_END, cursor, entries, behind)
        self._note(FindingKind.INDEX_OF_LOST_RECORD, cursor, entries, lost & ~behind)
        self._note(FindingKind.INDEX_ENTRY, cursor, entries, ~lost & ~behind)

    def _note(self, kind: FindingKind, cursor: _FileCursor, entries: _Entries, which: Any) -> None:
        rows = np.flatnonzero(which)
        if not len(rows):
            return
        numbers, offsets = entries.entry[rows], entries.commit_log_offset[rows]
        shown = zip(numbers[:5].tolist(), offsets[:5].tolist())
        self._findings.add(
            kind,
            cursor.file.path,
            position=entry_position(cursor.file, int(numbers[0])),
            commit_log_offset=int(offsets[0]),
            count=len(rows),
            examples=[f"entry {number} -> {offset}" for number, offset in shown],
        )


def entry_position(file: IndexFile, entry: int) -> int:
    """Return the byte position of an entry in its file."""
    return index_file_bytes(file.max_hash_slot_num, 0) + entry * INDEX_ENTRY.size


def misplaced_ends(file: IndexFile) -> list[str]:
    """Return, in words, how the header contradicts the first and last entries."""
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
    """Walks all entries of a file once, with 5 bytes an entry and the slots in memory.

    Every chain ends if each link leads to an older entry; every entry can be found if its slot or a
    newer entry of the same slot names it.
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
