"""Check that the entries of a DLedger log follow each other, by index and by term."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.dledger_entries import entry_headers, headers_ok
from store_core.layout.dledger import DLEDGER_ENTRY
from store_core.tools.check.entry_index_check import EntryIndexCheck
from store_core.tools.check.finding_kinds import FindingKind

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.files.segment_list import Segment
    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

_SHOWN = 8


class EntryCheck:
    """Looks at the headers of all entries, in the order of the log.

    Each has an index that is one more than the last, wherever no bytes are lost between, and a term
    that is no smaller. Nobody sets its CRCs. Units of the node's index are compared with those that
    are as they should be.
    """

    def __init__(self, snapshot: StoreSnapshot, findings: Findings, counts: CheckCounts) -> None:
        self._findings, self._file_size = findings, snapshot.log.segments.file_size
        self._units = EntryIndexCheck(snapshot, findings, counts)
        self._end = self._border = self._index = self._term = -1

    def check(self, frames: RecordFrames, segment: Segment) -> None:
        """Look at the entries of records that follow those of the last call."""
        headers = entry_headers(frames)
        good = headers_ok(headers, frames)
        index, term = (headers[name].astype(np.int64) for name in ("index", "term"))
        start = frames.column("commit_log_offset") - DLEDGER_ENTRY.size
        end = start + DLEDGER_ENTRY.size + frames.column("total_size")
        joined = start == np.append(self._end, end[:-1])
        joined[0] |= int(start[0]) == self._border  # behind the blank of the file before
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
