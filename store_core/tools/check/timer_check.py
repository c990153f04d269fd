# SPDX-License-Identifier: Apache-2.0
"""Check the timer of a 5.x store: waiting messages in wheel and log against records, and back.

Delivered messages are not checked. A broker writes units before slots and flushes neither when it
stops; it repairs that at startup, so a wheel that lacks units at the end of the log is good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.arrow import pa, pc
from store_core.codec.message_batch_codec import MessageColumns
from store_core.errors import StoreError
from store_core.layout import PROPERTY_TIMER_OUT_MS, TIMER_LOG_UNIT
from store_core.read.timer_state import (
    TimerProgress,
    TimerUnits,
    load_timer_progress,
    load_timer_slots,
    load_timer_units,
)
from store_core.state.store_state import StoreState
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread
from store_core.topics import TIMER_TOPIC, numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

    Int64s = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

_UNITS_AT_ONCE = 1 << 15
_NO_TIME = -1
_SHOWN = 5


class _Timer(NamedTuple):
    """Contents of the timer's files, read in an order that is safe while a broker runs."""

    progress: TimerProgress
    slots: npt.NDArray[np.void]
    units: TimerUnits


def check_timer(snapshot: StoreSnapshot, findings: Findings, counts: CheckCounts) -> None:
    """Report damage to messages that wait in the timer.

    Memory: 60 bytes a unit of the timer log, and a batch of records.
    """
    try:
        progress = load_timer_progress(snapshot.directory)
        slots = load_timer_slots(snapshot.directory)
        units = load_timer_units(snapshot.directory)
    except StoreError as err:
        findings.add(unread(err, FindingKind.TIMER_FILES), "timer", examples=[str(err)])
        return
    is_unknown = progress is None and snapshot.state is not StoreState.LIVE  # which writes it later
    if len(units.units) and (is_unknown or (progress is not None and progress.read_ms <= 0)):
        why = "is missing" if progress is None else "does not say how far the timer has come"
        said = f"config/timercheck {why}: a broker treats all timer messages as new"
        findings.add(FindingKind.TIMER_FILES, "timer", examples=[said])
        return
    if progress is None or slots is None:  # a broker rebuilds the timer
        return
    counts.timer_units, counts.timer_slots = len(units.units), len(slots)
    check = _TimerCheck(snapshot, _Timer(progress, slots, units), findings)
    check.units()
    check.slots()
    check.lost()


class _TimerCheck:
    def __init__(self, snapshot: StoreSnapshot, timer: _Timer, findings: Findings) -> None:
        self._snapshot, self._timer, self._findings = snapshot, timer, findings
        self._waits = timer.units.slot_ms >= timer.progress.read_ms

    def units(self) -> None:
        """Check each unit that waits against its record."""
        rows = np.flatnonzero(self._waits)
        units = self._timer.units.units[rows]
        places = units["commit_log_offset"].astype(np.int64)
        order = np.argsort(places, kind="stable")
        for some, frames in self._frames(places[order]):
            chosen = order[some]
            is_good = frames.ok & (frames.column("total_size") == units["message_size"][chosen])
            is_good[is_good] = _is_of_timer(frames.take(np.flatnonzero(is_good)))
            self._note_units(FindingKind.TIMER_UNIT, rows[chosen[~is_good]])

    def slots(self) -> None:
        """Check that slots point at units of their time, and each of these at the previous one."""
        units, slots = self._timer.units, self._timer.slots
        step = self._snapshot.config.timer_precision_ms
        times = slots["time"].astype(np.int64) * step
        known = times >= self._timer.progress.read_ms
        last = slots["last_pos"][known].astype(np.int64)
        end = int(units.positions[-1]) + TIMER_LOG_UNIT.size if len(units.positions) else 0
        at = np.minimum(np.searchsorted(units.positions, last), max(len(units.positions) - 1, 0))
        is_bad = last < end  # at startup a broker clears slots that point past the log
        if len(units.positions):
            is_bad &= (units.positions[at] != last) | (units.slot_ms[at] != times[known])
        self._note(
            FindingKind.TIMER_SLOT,
            "timerwheel",
            [
                f"slot of time {time}: unit at {place}"
                for time, place in zip(times[known][is_bad].tolist(), last[is_bad].tolist())
            ],
        )
        self._chains()

    def _chains(self) -> None:
        """Check that each waiting unit points at the previous one of its time."""
        positions, times = self._timer.units.positions, self._timer.units.slot_ms
        rows = np.flatnonzero(self._waits)
        rows = rows[np.lexsort((positions[rows], times[rows]))]
        before = np.full(len(rows), -1, np.int64)
        same = times[rows[1:]] == times[rows[:-1]]
        before[1:][same] = positions[rows[:-1]][same]
        prev = self._timer.units.units["prev_pos"][rows].astype(np.int64)
        # The first is not checked: the file with the unit before it may have been deleted.
        self._note_units(FindingKind.TIMER_SLOT, rows[(prev != before) & (before >= 0)])

    def lost(self) -> None:
        """Check that enqueued records that still wait have a unit."""
        held = self._snapshot.queue_range(TIMER_TOPIC, 0)
        queue = self._snapshot.consume_queue(TIMER_TOPIC, 0)
        stop = min(held.max_offset, self._timer.progress.queue_offset)
        known = self._timer.units.units["commit_log_offset"]
        for start in range(held.min_offset, stop if queue is not None else 0, _UNITS_AT_ONCE):
            assert queue is not None
            places = queue.read_units(start, min(start + _UNITS_AT_ONCE, stop))["commit_log_offset"]
            for _, frames in self._frames(
                np.sort(places[~np.isin(places, known)]).astype(np.int64)
            ):
                self._lost_records(frames.take(np.flatnonzero(frames.ok)))

    def _lost_records(self, frames: RecordFrames) -> None:
        texts = MessageColumns(frames).property_values(PROPERTY_TIMER_OUT_MS)
        out_ms = numbers_of(texts, _NO_TIME)
        lost = frames.column("commit_log_offset")[out_ms >= self._timer.progress.read_ms]
        told = [f"record at offset {offset}" for offset in lost.tolist()]
        self._note(FindingKind.TIMER_LOST, "timerlog", told)

    def _frames(self, places: Int64s) -> Iterator[tuple[Int64s, RecordFrames]]:
        """Yield the rows and frames of records at ascending places; expired ones are left out.

        So are places past the end of the log: these records were cut off.
        """
        log, end = self._snapshot.log, self._snapshot.end_offset
        begin = max(log.min_offset, 0)
        for segment in log.segments:
            low, high = segment.from_offset, min(segment.from_offset + segment.size, end)
            rows = np.flatnonzero((places >= max(low, begin)) & (places < high))
            for at in range(0, len(rows), _UNITS_AT_ONCE):
                some = rows[at : at + _UNITS_AT_ONCE]
                yield some, log.frames_at(segment, places[some], end)

    def _note_units(self, kind: FindingKind, rows: Int64s) -> None:
        places = self._timer.units.positions[rows].tolist()
        offsets = self._timer.units.units["commit_log_offset"][rows].tolist()
        told = [f"unit at {at} of the record at {offset}" for at, offset in zip(places, offsets)]
        self._note(kind, "timerlog", told)

    def _note(self, kind: FindingKind, place: str, told: list[str]) -> None:
        if told:
            self._findings.add(kind, place, count=len(told), examples=told[:_SHOWN])


def _is_of_timer(frames: RecordFrames) -> Bools:
    if not len(frames):
        return np.zeros(0, np.bool_)
    is_it = pc.equal(MessageColumns(frames).column("topic").cast(pa.string()), TIMER_TOPIC)
    found: Bools = is_it.to_numpy(zero_copy_only=False)
    return found
