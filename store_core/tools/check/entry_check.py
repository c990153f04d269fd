# SPDX-License-Identifier: Apache-2.0
"""Check that the entries of a DLedger log follow each other, by index and by term."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.dledger_entries import entry_headers, headers_ok
from store_core.errors import StoreError, StoreKindError
from store_core.files.segment_list import Segment, SegmentList, list_segments
from store_core.layout import DLEDGER_ENTRY, DLEDGER_INDEX_DIR, DLEDGER_INDEX_UNIT
from store_core.log.dledger_log import dledger_node
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

    Int64s = npt.NDArray[np.int64]
    EntryRows = npt.NDArray[np.void]

_SHOWN = 8
_FIELDS = ("magic", "pos", "size", "index", "term")
_FILES_RECOVERED = 3


class EntryCheck:
    """Checks the headers of all entries, in log order.

    Where no bytes are lost in between, an entry's index is one more than that of the entry before,
    and its term is not smaller. DLedger sets no CRCs. Units of the node's index are compared with
    the headers that are right.
    """

    def __init__(self, snapshot: StoreSnapshot, findings: Findings, counts: CheckCounts) -> None:
        self._findings, self._file_size = findings, snapshot.log.segments.file_size
        self._units = EntryIndexCheck(snapshot, findings, counts)
        self._end = self._border = self._index = self._term = -1

    def check(self, frames: RecordFrames, segment: Segment) -> None:
        """Check the entries of records that follow those of the last call."""
        headers = entry_headers(frames)
        good = headers_ok(headers, frames)
        index, term = (headers[name].astype(np.int64) for name in ("index", "term"))
        start = frames.column("commit_log_offset") - DLEDGER_ENTRY.size
        end = start + DLEDGER_ENTRY.size + frames.column("total_size")
        joined = start == np.append(self._end, end[:-1])
        joined[0] |= int(start[0]) == self._border  # after the blank of the file before
        joined &= good & np.append(self._end >= 0, good[:-1])
        is_odd = joined & (index != np.append(self._index, index[:-1]) + 1)
        is_odd |= joined & (term < np.append(self._term, term[:-1]))
        is_odd |= good & ((headers["chain_crc"] != 0) | (headers["body_crc"] != 0))
        self._note(np.flatnonzero(is_odd), headers, segment)
        self._units.check(headers[good & ~is_odd])
        self._end = int(end[-1]) if good[-1] else -1
        self._border = segment.from_offset + self._file_size if good[-1] else -1
        self._index, self._term = int(index[-1]), int(term[-1])

    def _note(
        self, rows: npt.NDArray[np.int64], headers: npt.NDArray[np.void], segment: Segment
    ) -> None:
        if not len(rows):
            return
        odd = headers[rows]
        first = int(odd["pos"][0])
        self._findings.add(
            FindingKind.ENTRY_HEADER,
            segment.path,
            position=first - segment.from_offset,
            commit_log_offset=first,
            count=len(rows),
            byte_count=len(rows) * DLEDGER_ENTRY.size,
            examples=[
                f"entry at {one['pos']}: index {one['index']}, term {one['term']}, "
                f"CRCs {one['chain_crc']} and {one['body_crc']}"
                for one in odd[:_SHOWN]
            ],
        )


class EntryIndexCheck:
    """Compares each unit of a node's index with the header of its entry.

    A leader uses it to find the entries that it sends to other nodes. At startup DLedger checks the
    entries of the last three data files and rewrites their units from the first wrong one on; if
    the index is missing, it rebuilds all of it. Units of older entries are never checked.

    Source: DLedger ``DLedgerMmapFileStore.recover``, ``get`` (0.3.1.2).
    """

    def __init__(self, snapshot: StoreSnapshot, findings: Findings, counts: CheckCounts) -> None:
        self._directory, self._findings, self._counts = snapshot.directory, findings, counts
        self._files = self._listed(snapshot)
        data = [s.from_offset for s in snapshot.log.segments if s.header_bytes]
        self._made_anew_from = data[-_FILES_RECOVERED:][0] if data else 0

    def _listed(self, snapshot: StoreSnapshot) -> SegmentList:
        node = _node(snapshot)
        if node is None:
            return SegmentList([], 0)
        path = snapshot.directory.resolve(node, DLEDGER_INDEX_DIR)
        try:
            return list_segments(
                lambda: snapshot.directory.list(path),
                file_size=None,
                unit_bytes=DLEDGER_INDEX_UNIT.size,
                option="mappedFileSizeForEntryIndex",
            )
        except StoreError as err:
            kind = unread(err, FindingKind.ENTRY_INDEX)
            self._findings.add(kind, path, examples=[str(err)])
            return SegmentList([], 0)

    def check(self, headers: EntryRows) -> None:
        """Check the units of entries, given in ascending order, whose headers fit their records."""
        if not len(self._files) or not len(headers):
            return
        units = self._units(headers["index"].astype(np.int64))
        self._counts.entry_index_units += len(headers)
        wrong = np.zeros(len(headers), bool)
        for name in _FIELDS:
            wrong |= units[name] != headers[name]
        late = headers["pos"] >= self._made_anew_from
        self._note(FindingKind.ENTRY_INDEX, headers, units, np.flatnonzero(wrong & ~late))
        self._note(FindingKind.ENTRY_INDEX_LATE, headers, units, np.flatnonzero(wrong & late))

    def _units(self, indexes: Int64s) -> EntryRows:
        """Return the unit of each entry; zeros if no file contains it."""
        size, units = DLEDGER_INDEX_UNIT.size, np.zeros(len(indexes), DLEDGER_INDEX_UNIT.dtype)
        for segment in self._files:
            last = segment.from_offset + min(segment.size, self._files.file_size) - size
            held = (indexes >= -(-segment.from_offset // size)) & (indexes <= last // size)
            if held.any():
                starts = indexes[held] * size - segment.from_offset
                units[held] = self._read(segment, starts)
        return units

    def _read(self, segment: Segment, starts: Int64s) -> EntryRows:
        size = DLEDGER_INDEX_UNIT.size
        try:
            with self._directory.open(segment.path) as source:
                raw = source.gather(starts, size)
        except StoreError as err:
            self._findings.add(unread(err), segment.path, examples=[str(err)])
            return np.zeros(len(starts), DLEDGER_INDEX_UNIT.dtype)
        return np.ascontiguousarray(raw).view(DLEDGER_INDEX_UNIT.dtype).reshape(len(starts))

    def _note(self, kind: FindingKind, headers: EntryRows, units: EntryRows, rows: Int64s) -> None:
        if not len(rows):
            return
        first = int(headers["index"][rows[0]])
        segment = self._files.find(first * DLEDGER_INDEX_UNIT.size)
        shown = rows[:_SHOWN]
        self._findings.add(
            kind,
            segment.path if segment else self._files.segments[0].path,
            position=first * DLEDGER_INDEX_UNIT.size - segment.from_offset if segment else -1,
            commit_log_offset=int(headers["pos"][rows[0]]),
            count=len(rows),
            byte_count=len(rows) * DLEDGER_INDEX_UNIT.size,
            examples=[
                f"entry {entry['index']} of term {entry['term']}, {entry['size']} bytes at "
                f"{entry['pos']}: its unit says {unit['index']}, {unit['term']}, {unit['size']} "
                f"bytes at {unit['pos']}"
                for entry, unit in zip(headers[shown], units[shown])
            ],
        )


def _node(snapshot: StoreSnapshot) -> str | None:
    """Return the directory of the node whose log is checked; None if there is none, or several.

    A log configured by its path (``storePathDLedgerCommitLog``) is read without the node's name.
    """
    if not snapshot.dledger_directories:
        return None
    try:
        return dledger_node(snapshot.directory, snapshot.config)
    except StoreKindError:
        return None
