# SPDX-License-Identifier: Apache-2.0
"""Where a log ends: one table, by which reading, checking and recovery decide.

RocketMQ's recovery cuts a log at the first place where validation fails, and erases nothing: old
records can remain after the cut, in its segment or in the one that begins at it. And a record can
fail because the disk lost it. For a place that fails, the first row below that applies decides;
*the record before* is the last good one, also across a blank record and the border of a segment,
and *those after* are the readable records after the place.

===  =======  ==================================================================  ================
row  stopped  facts                                                               verdict
===  =======  ==================================================================  ================
1    either   the file ends, or a blank record closes the last segment            the end
2    either   only zeros follow                                                   the end
3    open     nothing from here on was dispatched: a broker is writing            the end
4    either   a staged job that was not committed begins here                     the end
5    crashed  the record here lacks only its first eight bytes, and none from     the end
              here on was flushed or dispatched: a kill interrupted an append
6    cleanly  the checkpoint confirms the record before as the last (not row 9)   the end
7    either   no readable record follows                                          damage, no loss
8    either   the first two of those after, or the only one, are older than the   the end
              record before (not row 9; not after a crash that left units of
              some, or if the checkpoint calls one of them flushed)
9    cleanly  the checkpoint does not call the record before dispatched last,     damage
              but one of those after; or all of those are dispatched
10   cleanly  those after were never dispatched                                   the end
11   crashed  none of those after was flushed or dispatched                       a crash's tail
12   either   anything else                                                       damage
===  =======  ==================================================================  ================

Rows 5, 6 and 8 to 10 apply only if no later segment has a readable record: recovery deletes those.
A record was dispatched if any unit of its queue refers to it by position and size: after a rebuild
or a dispatch over damage, units are at other queue offsets than their records say. It was never
dispatched if none does, and its queue is complete up to the failure, as far as is known. Otherwise
it is not known.
If row 7 applies to a record that can be read (it fails only a CRC), recovery cuts it off only if
the store crashed, or if it was never dispatched: a clean stop leaves no half-written record.
Readers treat a crash's tail as damage; recovery may cut it, and saves a copy. It saves one of an
interrupted append, too: on a slave, the master may be gone by then. An append writes its first
eight bytes last, so none of its records was acknowledged. On a slave it may be older than what was
flushed before it: the master's clock may have been set back.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from store_core.codec.crc32 import first_invalid
from store_core.codec.record_frames import RecordFrames
from store_core.layout import (
    HEADER_IPV4,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    MIN_RECORD_BYTES,
    RECORD_PREFIX,
)
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import BatchSizer, skip_gap

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.log.commit_log import ReadableLog

ZEROS = "only zeros follow"
CONFIRMED = "the checkpoint confirms the record before it as the last"
OLDER_ENTRY = "the next DLedger entry is older than the last: it remains from an earlier cut"
OLDER = "the next readable record is older: it remains from an earlier cut of the log"
NEVER_DISPATCHED = "the records after it were never dispatched: they remain from an earlier cut"
NO_RECORD_AFTER = "damaged bytes with no record after them"
CRASH_TAIL = "the store crashed before the records after it were flushed or dispatched"
UNFINISHED_APPEND = "a crash interrupted the append that begins here"
DAMAGED = "a record is damaged"
LAST_DAMAGED = "the last record fails its CRC although the store was stopped cleanly"

_NEVER = int(np.iinfo(np.int64).max)

DISPATCHED, NO_UNIT, UNKNOWN, LACKING, REPLACED = 2, 1, 0, -1, -2
"""States of a record, in this order: a unit of its queue refers to it; it gets no unit (a prepared
message); its queue shows neither; no unit does, and it would have been the queue's next; no unit
does, and its queue offset is that of a record before the failure that was stored no earlier.
"""


class Failure(NamedTuple):
    """A place where validation fails.

    Attributes
    ----------
    last_start, last_timestamp
        The record before: its start (-1 if none is known) and its store time, ms.
    """

    offset: int
    last_start: int = -1
    last_timestamp: int = 0


class UnitStates(Protocol):
    """Determines whether records were dispatched."""

    def states_of(self, frames: RecordFrames) -> npt.NDArray[np.int8]:
        """Return the state of each record; each call's records follow those of the last call."""


class CutEvidence(Protocol):
    """Evidence on a log from the rest of its store.

    Attributes
    ----------
    confirm_phy_offset
        Start of the last record that recovery accepted, by the checkpoint; 0 or None = not known.
    logics_msg_timestamp
        Store time of the record dispatched last, by the checkpoint; 0 or None = not known.
    physic_msg_timestamp
        Store time up to which the log was flushed, by the checkpoint; 0 or None = not known.
    is_slave
        Whether the store's records come from a master.
    """

    stopped_cleanly: bool
    is_slave: bool
    confirm_phy_offset: int | None
    logics_msg_timestamp: int | None
    physic_msg_timestamp: int | None

    def unit_states(self, offset: int, gap_bytes: int) -> UnitStates:
        """Return the evidence of the queues on the records after a gap of the log."""


class _Following:
    """The readable records that follow a failure in its segment; read when needed.

    ``after`` is the start of the first one.
    """

    def __init__(
        self, log: ReadableLog, failure: Failure, after: int, evidence: CutEvidence
    ) -> None:
        self._log, self._failure, self._after = log, failure, after
        self._evidence = evidence

    @property
    def holds_last(self) -> bool:
        """Whether the record dispatched last is among these, and is not the record before.

        One of these has the time in the checkpoint, whatever queues lack; or all are dispatched
        and none has that time: its record is damaged, or the clock was set back.
        """
        logics = self._evidence.logics_msg_timestamp or 0
        if self._after < 0 or not self._evidence.stopped_cleanly:
            return False
        if logics <= 0 or logics == self._failure.last_timestamp or self._found.is_replaced:
            return False
        found = self._found
        return found.last_timestamp == logics or found.has_last or found.is_dispatched

    @property
    def crashed_dispatched(self) -> bool:
        """Whether the store crashed after it dispatched some, or by the checkpoint flushed some.

        Then the time of the record before may be wrong, or the clock was set back.
        """
        if self._evidence.stopped_cleanly:
            return False
        physic, found = self._evidence.physic_msg_timestamp or 0, self._found
        is_flushed = 0 < physic < self._failure.last_timestamp and found.has_flushed
        return (found.has_dispatched or is_flushed) and not found.is_replaced

    @property
    def was_never_dispatched(self) -> bool:
        """Whether some were never dispatched, and none after those was.

        After a clean stop all records of a log are dispatched. Units of the first ones may remain
        from a dispatch before the crash.
        """
        return self._evidence.stopped_cleanly and self._found.is_cut

    @property
    def is_unfinished_append(self) -> bool:
        """Whether a crash interrupted the append of these records and one before them."""
        evidence, start = self._evidence, self._failure.offset
        if evidence.stopped_cleanly or self._after < 0:
            return False
        record = _record_without_head(self._log, start, self._after)
        if record is None or self._found.has_dispatched:
            return False
        if DISPATCHED in evidence.unit_states(start, 0).states_of(record):
            return False
        own_ms = int(record.column("store_timestamp")[0])
        oldest_ms = min(own_ms, self._found.oldest_timestamp)
        return evidence.is_slave or is_unflushed(oldest_ms, self._failure.last_timestamp, evidence)

    @cached_property
    def _found(self) -> _Found:
        size = self._log.segments.file_size
        stop = self._after - self._after % size + size
        gap_bytes = self._after - self._failure.offset
        states = self._evidence.unit_states(self._failure.offset, gap_bytes)
        logics = self._evidence.logics_msg_timestamp or 0
        last_known = logics if logics == self._failure.last_timestamp else 0
        segment = self._log.segments.find(self._after)
        noted = (logics, self._evidence.physic_msg_timestamp or 0)
        found = _Found(self._after, last_known, segment.header_bytes if segment else 0, noted)
        for frames in scan_frames(self._log, self._after, stop, on_gap=skip_gap):
            found.add(frames, states.states_of(frames))
        return found


class _Found:
    """Facts about the following records; ``last_known`` is the time of the last dispatch.

    ``noted`` has the checkpoint's times of the last dispatch and the last flush. All records are
    compared with them (``has_last``, ``has_flushed``): the last ones may be from an older cut.
    """

    def __init__(
        self, start: int, last_known: int, header_bytes: int, noted: tuple[int, int]
    ) -> None:
        self._header_bytes, self._noted = header_bytes, noted
        self.has_last = self.has_flushed = False
        self.last_timestamp, self.oldest_timestamp = 0, _NEVER
        self.is_replaced = False
        self._run_end, self._last_known = start, last_known
        self._last_times: list[int] = []
        self._queued = 0
        self._lacks = self._lacks_in_run = False
        self.has_dispatched = self._contradicted = False

    @property
    def is_dispatched(self) -> bool:
        """Return whether units refer to some records, and no record is known to lack one."""
        return self.has_dispatched and not self._lacks

    @property
    def _is_newer(self) -> bool:
        """Whether the last two records of the run, or the only one, are newer than the dispatch.

        No checksum covers a time, so one wrong time among several does not turn damage into a cut.
        """
        is_enough = len(self._last_times) == min(self._queued, 2)
        return is_enough and 0 < self._last_known < min(self._last_times, default=0)

    @property
    def is_cut(self) -> bool:
        """Return whether the run of records after the failure is not part of the log."""
        if self.is_replaced or self._is_newer:
            return True
        # If all have the time of the last dispatch, their queue may have lost its end since.
        is_tie = self.has_dispatched and self.last_timestamp == self._last_known
        return self._lacks_in_run and not self._contradicted and not is_tie

    def add(self, frames: RecordFrames, states: npt.NDArray[np.int8]) -> None:
        """Add records, in order."""
        times, is_run = frames.column("store_timestamp"), self._in_run(frames)
        lacking = np.flatnonzero(states < 0)
        dispatched = np.flatnonzero(states == DISPATCHED)
        first = int(lacking[0]) if len(lacking) else len(states)
        if self._lacks or (len(dispatched) and int(dispatched[-1]) > first):
            self._contradicted |= len(dispatched) > 0
        if not self._lacks and first < len(states):
            self._lacks_in_run = bool(is_run[first])
        self._lacks |= len(lacking) > 0
        self.has_dispatched |= len(dispatched) > 0
        self.has_last |= bool((times[dispatched] == self._noted[0]).any())
        self.has_flushed |= bool((times == self._noted[1]).any())
        self.oldest_timestamp = min(self.oldest_timestamp, int(times.min(initial=_NEVER)))
        self.is_replaced |= bool((is_run & (states == REPLACED)).any())
        queued = states != NO_UNIT
        self._last_times = [*self._last_times, *times[is_run & queued][-2:].tolist()][-2:]
        self._queued += int(queued.sum())
        if queued.any():
            self.last_timestamp = int(times[queued][-1])

    def _in_run(self, frames: RecordFrames) -> npt.NDArray[np.bool_]:
        """Return which records follow each other without a gap from the first on."""
        start = frames.column("commit_log_offset")
        stop = start + frames.column("total_size") + self._header_bytes
        joined = start == np.concatenate([[self._run_end], stop[:-1]])
        good = len(joined) if joined.all() else int(np.argmin(joined))
        self._run_end = int(stop[good - 1]) if good == len(joined) else -1
        return np.arange(len(joined)) < good


def reason_for_end(
    log: ReadableLog, failure: Failure, after: int, evidence: CutEvidence
) -> str | None:
    """Return why a log ends where validation fails (rows 5 to 10); None if it does not.

    Parameters
    ----------
    after
        Start of the first readable record after it, in its segment; -1 if none.
    """
    following = _Following(log, failure, after, evidence)
    if following.is_unfinished_append:
        return UNFINISHED_APPEND
    if following.holds_last:
        return None
    confirmed = evidence.confirm_phy_offset or 0
    if evidence.stopped_cleanly and 0 < confirmed == failure.last_start:
        return CONFIRMED
    if after < 0:
        return None
    if failure.last_start >= 0 and _begins_before(log, after, failure.last_timestamp):
        return None if following.crashed_dispatched else OLDER
    return NEVER_DISPATCHED if following.was_never_dispatched else None


def is_unflushed(oldest_ms: int, last_ms: int, evidence: CutEvidence) -> bool:
    """Return whether the checkpoint calls none of the records after a failure flushed.

    Some records of the millisecond that was flushed last may not have been flushed.

    Parameters
    ----------
    oldest_ms, last_ms
        Store times of the oldest of those, and of the record before.
    """
    physic = evidence.physic_msg_timestamp or 0
    return oldest_ms > physic or oldest_ms == physic == last_ms


def _record_without_head(log: ReadableLog, start: int, stop: int) -> RecordFrames | None:
    """Return the record that fills a range if its first eight bytes are zeros, else None.

    Those bytes, its size and magic code, are filled in, and its CRC is right.
    """
    segment = log.segments.find(start)
    if segment is None or segment.header_bytes:
        return None
    at, size = start - segment.from_offset, stop - start
    records = log.records(segment, segment.from_offset + log.segments.file_size)
    if size < MIN_RECORD_BYTES or not records.is_zero(at, at + RECORD_PREFIX.size):
        return None
    header = HEADER_IPV4.unpack(records.bytes_at(at, HEADER_IPV4.size))
    if header.commit_log_offset != start:
        return None
    data = records.bytes_at(at, size).copy()
    for magic_code in (MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2):
        head = RECORD_PREFIX.pack(total_size=size, magic_code=magic_code)
        data[: len(head)] = np.frombuffer(head, np.uint8)
        frames = RecordFrames(data, start, np.zeros(1, np.int64))
        if first_invalid(frames) == 1:
            return frames
    return None


def _begins_before(log: ReadableLog, offset: int, time_ms: int) -> bool:
    """Return whether a record, and the next one if there is one, are older than a time.

    No checksum covers a time, so one wrong time must not turn damage into an old cut.
    """
    stop = offset - offset % log.segments.file_size + log.segments.file_size
    times: list[int] = []
    for frames in scan_frames(log, offset, stop, on_gap=skip_gap, sizer=BatchSizer(2, 1 << 20)):
        times += frames.column("store_timestamp").tolist()
        if len(times) > 1:
            break
    return all(time < time_ms for time in times[:2])


def record_before_border(log: ReadableLog, border: int, start: int) -> tuple[int, int]:
    """Return start and store time of the last record before a segment; (-1, 0) if there is none.

    It ends where the segment begins, or where a blank record does that fills the rest.

    Parameters
    ----------
    start
        A record of the previous segment to begin with, or that segment's first byte.
    """
    segment = log.segments.find(border - 1)
    if segment is None or border % log.segments.file_size:
        return -1, 0
    last, last_ms = -1, 0
    begin = max(start, segment.from_offset)
    for frames in scan_frames(log, begin, border, on_gap=skip_gap):
        last = int(frames.column("commit_log_offset")[-1])
        last_ms = int(frames.column("store_timestamp")[-1])
    return (last, last_ms) if last >= 0 and is_last_of_segment(log, last) else (-1, 0)


def is_last_of_segment(log: ReadableLog, offset: int) -> bool:
    """Return whether a record starts there, and ends with its segment or before a blank record."""
    segment = log.segments.find(offset)
    if segment is None:
        return False
    border = segment.from_offset + log.segments.file_size
    frames = log.frames_at(segment, np.array([offset], np.int64), border)
    if not frames.ok[0]:
        return False
    end = offset + int(frames.column("total_size")[0])
    records = log.records(segment, border)
    return end == border or records.blank_bytes(end - segment.from_offset) is not None
