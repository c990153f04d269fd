# SPDX-License-Identifier: Apache-2.0
"""Find where a commit log ends, without writing and without walking more than is needed.

It walks the last segment with data; `end_rules` decides about each place that fails there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from store_core.codec.crc32 import first_invalid
from store_core.codec.dledger_entries import entry_headers, first_older, headers_ok
from store_core.codec.record_frames import RecordFrames
from store_core.files.byte_source import first_nonzero, last_nonzero
from store_core.log.end_rules import (
    NO_RECORD_AFTER,
    OLDER_ENTRY,
    ZEROS,
    CutEvidence,
    Failure,
    is_last_of_segment,
    reason_for_end,
    record_before_border,
)

if TYPE_CHECKING:
    from store_core.files.segment_list import Segment
    from store_core.log.commit_log import CommitLog

_WALK_ROWS = 16384
_WALK_BYTES = 16 << 20


class EndEvidence(CutEvidence, Protocol):
    """Evidence on a log from the rest of its store; each piece is read only when needed.

    Attributes
    ----------
    never_recovered
        A 5.x broker wrote the store and never restarted on data, so the log was never cut.
    """

    never_recovered: bool

    def is_live(self) -> bool:
        """Return whether a broker has the store open now."""

    def indexed_offset(self) -> int | None:
        """Return the start of some record near the end that was dispatched, or None."""

    def last_dispatched(self) -> tuple[int, int]:
        """Return start and end of the last record that is in a consume queue; (-1, 0) if none."""

    def uncommitted_offset(self) -> int | None:
        """Return where a staged job begins that was not committed, or None."""


class LogEnd(NamedTuple):
    """End of the readable log (exclusive), and the sentence that says why it is there.

    ``proven_start`` is the start of a record that is known to be part of the log, near the end;
    -1 if there is none. ``tail_offset`` is where the damage at the end of the log begins (row 7 of
    `end_rules`); the end itself if the log ends with a whole record.
    """

    end_offset: int
    reason: str
    proven_start: int
    tail_offset: int


def find_log_end(log: CommitLog, evidence: EndEvidence, proven_start: int = -1) -> LogEnd:
    """Find the end of the log.

    Parameters
    ----------
    evidence
        Checkpoint, ``abort``, queues and lock of the same store.
    """
    segment = _last_with_data(log, evidence.uncommitted_offset())
    if segment is None:
        begin = max(log.min_offset, 0)
        return LogEnd(begin, "the log holds no data", -1, begin)
    walk = _EndWalk(log, segment, evidence)
    return walk.run(walk.start(proven_start))


def _last_with_data(log: CommitLog, uncommitted: int | None) -> Segment | None:
    for segment in reversed(log.segments.segments):
        if uncommitted is not None and segment.from_offset > uncommitted:
            continue
        if first_nonzero(log.source(segment)) >= 0:
            return segment
    return None


class _EndWalk:
    """The walk through the last segment with data; positions are relative to its file."""

    def __init__(self, log: CommitLog, segment: Segment, evidence: EndEvidence) -> None:
        self._log, self._segment, self._evidence = log, segment, evidence
        self._base = segment.from_offset
        self._records = log.records(segment, self._base + log.segments.file_size)
        self._last_good = -1
        self._header = segment.header_bytes
        self._last_entry = (-1, -1)  # index and term
        self._is_older_entry = False
        self._before: tuple[int, int] | None = None

    def start(self, proven_start: int) -> int:
        """Return the position to start from: a record without a cut before it, or 0."""
        if self._is_good(proven_start):
            return proven_start - self._base - self._header
        confirmed = self._evidence.confirm_phy_offset or 0
        if confirmed > 0 and confirmed >= self._base and self._is_good(confirmed):
            return confirmed - self._base - self._header
        if self._evidence.never_recovered or self._is_begun_after(confirmed):
            indexed = self._evidence.indexed_offset()
            offset = self._evidence.last_dispatched()[0] if indexed is None else indexed
            if self._is_good(offset):
                return offset - self._base - self._header
        return 0

    def _is_begun_after(self, confirmed: int) -> bool:
        """Return whether the segment was begun after the last recovery: then it was never cut.

        It may be older if the confirmed record is the last before it.
        """
        size = self._log.segments.file_size
        if not 0 < confirmed < self._base:
            return False
        return confirmed < self._base - size or not is_last_of_segment(self._log, confirmed)

    def _before_border(self, confirmed: int) -> tuple[int, int]:
        """Return start and store time of the previous segment's last record; (-1, 0) if none."""
        if self._before is None:
            size = self._log.segments.file_size
            start = confirmed if self._base - size <= confirmed < self._base else self._base - size
            self._before = record_before_border(self._log, self._base, start)
        return self._before

    def _is_good(self, offset: int) -> bool:
        at = offset - self._base
        if not self._records.is_record(at):
            return False
        return first_invalid(self._records.frames_at(np.array([at], np.int64))) == 1

    def run(self, at: int) -> LogEnd:
        """Walk from a position until a failing one is the end of the log."""
        looked_again = -1
        while True:
            at = self._walk(at)
            if self._is_older_entry:
                return self._end(at, OLDER_ENTRY)
            reason = self._reason_for_end(at)
            if reason is not None:
                return self._end(at, reason)
            if at != looked_again:  # a broker may have written there since: a record, or the blank
                looked_again = at
                continue
            # Asked only now: a job that began a moment ago wrote its journal before its records.
            uncommitted = self._evidence.uncommitted_offset()
            if uncommitted is not None and uncommitted == self._base + at:
                return self._end(at, "a staged job that was not committed begins here")
            after = self._records.find(at + self._header + 1)
            if uncommitted is not None and after >= uncommitted - self._base > at:
                after = -1
            following = self._base + after if after >= 0 else -1
            reason = reason_for_end(self._log, self._failure(at), following, self._evidence)
            if reason is not None:
                return self._end(at, reason)
            if after < 0:
                end = self._end_of_data(at, uncommitted)
                return self._end(end, NO_RECORD_AFTER, at)
            at = after - self._header

    def _end(self, at: int, reason: str, tail: int | None = None) -> LogEnd:
        proven = self._base + self._last_good if self._last_good >= 0 else -1
        tail_offset = self._base + (at if tail is None else tail)
        return LogEnd(self._base + at, reason, proven, tail_offset)

    def _failure(self, at: int) -> Failure:
        """Return the facts of a place that fails; reads the previous segment at most once."""
        if self._last_good >= 0:
            time_ms = self._records.store_timestamp(self._last_good)
            return Failure(self._base + at, self._base + self._last_good, time_ms)
        if at > 0:
            return Failure(self._base + at)
        return Failure(self._base, *self._before_border(self._evidence.confirm_phy_offset or 0))

    def _walk(self, at: int) -> int:
        """Return the first position from ``at`` on at which full validation fails."""
        while True:
            window = self._records.window(at, self._records.length)
            walk = self._records.walk(window, at, window.stop, _WALK_ROWS, _WALK_BYTES)
            frames = RecordFrames(window.data, self._base + window.start, walk.starts)
            good = first_invalid(frames)
            if self._header:
                good = self._first_older_entry(frames.take(np.arange(good)))
            if not good:
                return at
            self._last_good = window.start + int(walk.starts[good - 1])
            stop = int(walk.starts[good]) - self._header if good < len(walk.starts) else walk.stop
            self._log.source(self._segment).forget(at, window.start + stop - at)
            at = window.start + stop

    def _first_older_entry(self, frames: RecordFrames) -> int:
        """Return the first entry that is older than the one before it, or their number."""
        headers = entry_headers(frames)
        known = np.flatnonzero(headers_ok(headers, frames))
        older = first_older(headers[known], *self._last_entry)
        self._is_older_entry = older < len(known)
        if older:
            last = headers[known[older - 1]]
            self._last_entry = int(last["index"]), int(last["term"])
        return int(known[older]) if self._is_older_entry else len(frames)

    def _reason_for_end(self, at: int) -> str | None:
        """Return why a failing position is the end (rows 1 to 3); None if it may be damage."""
        if at >= self._records.length:
            return "the last segment is full"
        if self._records.closes_at(at):
            return "a blank record closes the last segment"
        if first_nonzero(self._log.source(self._segment), at) < 0:
            return ZEROS
        if (
            not self._evidence.stopped_cleanly
            and self._evidence.is_live()
            and self._base + at >= self._evidence.last_dispatched()[1]
        ):
            return "a broker is writing after its last dispatched record"
        return None

    def _end_of_data(self, at: int, uncommitted: int | None) -> int:
        """Return the position after the last nonzero byte before the uncommitted job.

        A record that fails only its CRC counts whole, even if its last bytes are zeros.
        """
        end = self._records.length
        if uncommitted is not None and uncommitted >= self._base + at:
            end = min(end, uncommitted - self._base)
        last = last_nonzero(self._log.source(self._segment), at, end)
        stop = last + 1 if last >= 0 else at
        start = at + self._header
        if self._records.is_record(start):
            stop = max(stop, start + self._records.claimed_bytes(start))
        return min(stop, end)
