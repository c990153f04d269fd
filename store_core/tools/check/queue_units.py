# SPDX-License-Identifier: Apache-2.0
"""Consume queues being checked, and which of their units records have proved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.files.segment_list import merged_ranges
from store_core.layout import SCHEDULE_TOPIC
from store_core.queue.batch_consume_queue import NATIVE_BATCH_CQ_UNIT, read_batch_units
from store_core.queue.consume_queue_ext import is_ext_address, read_ext_units
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.files.segment_list import SegmentList
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_database import StoredUnits
    from store_core.snapshot.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

    Bools = npt.NDArray[np.bool_]

_BLOCK_UNITS = 1 << 18  # 5 MB
_LEVEL_UNIT_MS = 1000
_FIELDS = ("tags_code", "store_timestamp", "base_queue_offset", "batch_size")


class MissingRecords:
    """Records of one queue without a unit; they may turn out to predate a restart of the queue."""

    def __init__(self) -> None:
        self.count = 0
        self.first = self.last = -1
        self.examples: list[str] = []

    def take_over(self, other: MissingRecords) -> None:
        """Replace the records by another's, which becomes empty."""
        self.count, self.examples = other.count, other.examples
        self.first, self.last = other.first, other.last
        other.count, other.examples = 0, []
        other.first = other.last = -1

    def add(self, rows: DispatchRequests) -> None:
        """Add records."""
        if not len(rows):
            return
        if self.first < 0:
            self.first = int(rows.commit_log_offset[0])
        self.last = int(rows.commit_log_offset[-1])
        pairs = zip(rows.commit_log_offset[:5].tolist(), rows.queue_offset[:5].tolist())
        self.examples += [f"record at {at}, queue offset {number}" for at, number in pairs]
        del self.examples[5:]
        self.count += len(rows)

    def absorb(self, other: MissingRecords) -> None:
        """Add another's records, which becomes empty."""
        if other.count:
            self.first = other.first if self.first < 0 else self.first
            self.last = max(self.last, other.last)
            self.examples = [*self.examples, *other.examples][:5]
            self.count += other.count
            other.take_over(MissingRecords())


class CheckedQueue:
    """Compares the units of one queue with the records that should be there.

    Files are open only during a call; in memory are a few numbers a queue. ``is_known`` is False if
    there is no permission to read its files; then its units are not reported on.
    """

    unit_word = "queue offset"

    def __init__(
        self,
        snapshot: StoreSnapshot,
        key: tuple[str, int],
        paths: tuple[str, str | None],
        findings: Findings,
        counts: CheckCounts,
    ) -> None:
        self.key = key
        self.place = f"{key[0]}/{key[1]}"
        self._findings = findings
        self._counts = counts
        self.proved = OffsetRanges()
        self.missing = MissingRecords()
        self.broken = False
        self.is_known = True
        self.first = self.end = 0
        self._queue: StoredUnits | None = None
        self._directory = snapshot.directory
        self._ext: SegmentList | None = None
        path, ext_path = paths
        config = snapshot.config
        try:
            self._queue = snapshot.open_queue(*key, path)
            if ext_path is not None:
                size = config.mapped_file_size_consume_queue_ext
                self._ext = CONSUME_QUEUE_EXT.segments(snapshot.directory, ext_path, size)
            self.first = self._queue.first_unit_offset()
            self.end = max(self._queue.end_of_units(), self.first)
        except (CorruptRecordError, StoreFormatError, StoreReadError) as err:
            self._unreadable(err)

    @property
    def first_proved(self) -> int:
        """First queue offset that a record proved; the end of the queue if none did."""
        ranges = self.proved.ranges()
        return ranges[0][0] if ranges else self.end

    def match(self, rows: DispatchRequests) -> Bools:
        """Return which records have a unit at their queue offset; report its tags code if wrong."""
        order = np.argsort(rows.queue_offset, kind="stable")
        matched = np.zeros(len(rows), bool)
        held = (rows.queue_offset >= self.first) & (rows.queue_offset < self.end)
        order = order[held[order]]
        numbers = rows.queue_offset[order]
        at = 0
        while at < len(order):
            stop = int(np.searchsorted(numbers, self._block_stop(int(numbers[at]))))
            block = order[at:stop]
            matched[block] = self._match_block(rows.take(block))
            at = stop
        return matched

    def _match_block(self, rows: DispatchRequests) -> Bools:
        start = int(rows.queue_offset[0])
        try:
            found = self._read(start, int(rows.queue_offset[-1]) + 1)
        except (CorruptRecordError, StoreReadError) as err:
            self._unreadable(err)
            return np.zeros(len(rows), bool)
        units = found[rows.queue_offset - start]
        good: Bools = units["commit_log_offset"] == rows.commit_log_offset
        good &= units["message_size"] == rows.message_size
        proved = rows.take(good)
        self.proved.add_sorted(proved.queue_offset)
        self._counts.units += len(proved)
        try:
            self._check_tags(proved, units["tags_code"][good])
        except (CorruptRecordError, StoreReadError) as err:
            self._unreadable(err)
        return good

    def _check_tags(self, rows: DispatchRequests, stored: Any) -> None:
        same = stored == rows.tags_code
        if same.all():
            return
        address = is_ext_address(stored) & ~same
        missing, codes = address.copy(), stored.copy()
        if self._ext is not None and address.any():
            at = np.flatnonzero(address)
            units = read_ext_units(self._directory, self._ext, stored[at])
            missing[at] = ~units.found
            codes[at] = units.tags_code
            good = units.found & (units.tags_code == rows.tags_code[at])
            good &= units.store_timestamp == rows.store_timestamp[at]
            self._counts.ext_units += int(np.count_nonzero(good))
            same[at[good]] = True
        self._tags(FindingKind.EXT_MISSING, rows, stored, missing)
        wrong = ~missing & ~same
        if self.key[0] == SCHEDULE_TOPIC:
            # The code of a delayed message is its delivery time, in the unit or the extension unit.
            # Delay levels are whole seconds in every configuration.
            impossible = (codes < rows.store_timestamp) | (
                (codes - rows.store_timestamp) % _LEVEL_UNIT_MS != 0
            )
            self._tags(FindingKind.UNIT_DELIVERY, rows, stored, wrong & impossible)
            self._tags(FindingKind.UNIT_TIME, rows, stored, wrong & ~impossible)
            return
        self._tags(FindingKind.EXT_UNIT, rows, stored, address & wrong)
        self._tags(FindingKind.UNIT_TAGS, rows, stored, ~address & wrong)

    def _tags(self, kind: FindingKind, rows: DispatchRequests, stored: Any, wrong: Bools) -> None:
        at = np.flatnonzero(wrong)
        if not len(at):
            return
        self._findings.add(
            kind,
            self.place,
            position=int(rows.queue_offset[at[0]]),
            commit_log_offset=int(rows.commit_log_offset[at[0]]),
            count=len(at),
            examples=[
                f"queue offset {rows.queue_offset[i]}: {stored[i]}, expected {rows.tags_code[i]}"
                for i in at[:5].tolist()
            ],
        )

    def unproved(self) -> Iterator[tuple[int, Any]]:
        """Yield (queue offset of the first, units) for each stretch that no record proved."""
        for start, stop in list(self.proved.holes(self.first, self.end)):
            at = start
            while at < stop:
                begin, at = at, min(self._block_stop(at), stop)
                try:
                    yield begin, self._read(begin, at)
                except (CorruptRecordError, StoreReadError) as err:
                    self._unreadable(err)
                    at = max(at, self._next_held(at))

    def _next_held(self, queue_offset: int) -> int:
        """Return the next queue offset that is in a file; there may be large gaps between files."""
        if self._queue is None:
            return self.end
        starts, size = self._queue.file_boundaries(), self._queue.units_per_file
        return next((max(n, queue_offset) for n in starts if n + size > queue_offset), self.end)

    def _block_stop(self, queue_offset: int) -> int:
        """Return where to stop reading: within one file, so that a missing one hides no others."""
        if self._queue is None or not self._queue.units_per_file:
            return queue_offset + _BLOCK_UNITS
        return min(self._queue.roll_next_file(queue_offset), queue_offset + _BLOCK_UNITS)

    def _read(self, start: int, stop: int) -> Any:
        if self._queue is None:
            raise CorruptRecordError("the queue cannot be opened", self.place, 0)
        return self._queue.read_units(start, stop)

    def _unreadable(self, err: CorruptRecordError | StoreFormatError | StoreReadError) -> None:
        if not self.broken:
            kind = unread(err, FindingKind.QUEUE_UNREADABLE)
            self.is_known &= kind is not FindingKind.NO_PERMISSION
            self._findings.add(kind, self.place, examples=[str(err)])
        self.broken = True


class OffsetRanges:
    """A set of numbers as disjoint ranges, to which adding at the end costs nothing.

    Memory grows with the number of ranges, not of numbers.
    """

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._merged = True

    def add_sorted(self, numbers: Any) -> None:
        """Add ascending numbers."""
        if not len(numbers):
            return
        breaks = np.flatnonzero(np.diff(numbers) > 1) + 1
        starts = numbers[np.concatenate([[0], breaks])].tolist()
        lasts = numbers[np.concatenate([breaks - 1, [len(numbers) - 1]])].tolist()
        for start, last in zip(starts, lasts):
            if self._ranges and self._ranges[-1][1] == start:
                self._ranges[-1] = (self._ranges[-1][0], last + 1)
                continue
            if self._ranges and start < self._ranges[-1][1]:
                self._merged = False
            self._ranges.append((start, last + 1))

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges ``(start, stop)``, ascending and disjoint."""
        if not self._merged:
            self._ranges, self._merged = merged_ranges(self._ranges), True
        return self._ranges

    def holes(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of ``[start, stop)`` that are not in the set."""
        at = start
        for begin, end in self.ranges():
            if begin >= stop:
                break
            if begin > at:
                yield at, min(begin, stop)
            at = max(at, end)
        if at < stop:
            yield at, stop


class CheckedBatchQueue:
    """Compares the units of a batch queue with the records that should be there.

    Memory: 46 bytes a unit, and 16 to find it by.
    """

    unit_word = "unit"

    def __init__(
        self,
        snapshot: StoreSnapshot,
        key: tuple[str, int],
        path: str,
        findings: Findings,
        counts: CheckCounts,
    ) -> None:
        self.key = key
        self.place = f"{key[0]}/{key[1]}"
        self._findings, self._counts = findings, counts
        self.missing = MissingRecords()
        self.is_known = True
        self._units: Any = np.empty(0, NATIVE_BATCH_CQ_UNIT)
        size = snapshot.config.mapper_file_size_batch_consume_queue
        try:
            segments = BATCH_CONSUME_QUEUE.segments(snapshot.directory, path, size)
            self._units = read_batch_units(snapshot.directory, segments)
        except (CorruptRecordError, StoreFormatError, StoreReadError) as err:
            kind = unread(err, FindingKind.QUEUE_UNREADABLE)
            self.is_known = kind is not FindingKind.NO_PERMISSION
            findings.add(kind, self.place, examples=[str(err)])
        self._proved = np.zeros(len(self._units), bool)
        self._by_offset = np.argsort(self._units["commit_log_offset"], kind="stable")
        self._offsets = self._units["commit_log_offset"][self._by_offset]
        self._differs = np.zeros(len(self._units), bool)

    @property
    def first_proved(self) -> int:
        """Number of the first unit that a record proved; the count of units if none did."""
        return int(np.argmax(self._proved)) if self._proved.any() else len(self._units)

    def match(self, rows: DispatchRequests) -> Any:
        """Return which records have their unit; report units whose other fields differ."""
        at = np.searchsorted(self._offsets, rows.commit_log_offset)
        inside = np.flatnonzero(at < len(self._offsets))
        place = self._by_offset[at[inside]]
        good = self._units["commit_log_offset"][place] == rows.commit_log_offset[inside]
        good &= self._units["message_size"][place] == rows.message_size[inside]
        matched = np.zeros(len(rows), bool)
        matched[inside[good]] = True
        place = place[good]
        self._proved[place] = True
        self._counts.units += len(place)
        units, proved = self._units[place], rows.take(matched)
        for name in _FIELDS:
            wrong = np.flatnonzero(units[name] != getattr(proved, name))
            self._differs[place[wrong]] = True
            self._note(name, units[wrong], place[wrong])
        return matched

    def unproved(self) -> Iterator[tuple[int, Any]]:
        """Yield (number of the first, units) for each stretch that no record proved."""
        rows = np.flatnonzero(~self._proved)
        for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
            if len(run):
                yield int(run[0]), self._units[run]

    def _note(self, name: str, units: Any, numbers: Any) -> None:
        if len(units):
            kind = FindingKind.UNIT_TAGS if name == "tags_code" else FindingKind.UNIT_WRONG
            self._findings.add(
                kind,
                self.place,
                position=int(numbers[0]),
                commit_log_offset=int(units["commit_log_offset"][0]),
                count=len(units),
                examples=[f"unit {numbers[0]}: {name} is {units[name][0]}"],
            )

    def check_order(self) -> None:
        """Report units that do not continue the previous one, after all records are matched."""
        units, good = self._units, self._proved & ~self._differs
        follows = units["base_queue_offset"][:-1] + units["batch_size"][:-1]
        odd = follows != units["base_queue_offset"][1:]
        # A queue rebuilt from good records has the same hole.
        is_hole = good[:-1] & good[1:]
        for kind, wrong in (
            (FindingKind.QUEUE_ORDER, np.flatnonzero(odd & ~is_hole)),
            (FindingKind.QUEUE_HOLE, np.flatnonzero(odd & is_hole)),
        ):
            self._findings.add(
                kind,
                self.place,
                position=int(wrong[0]) + 1 if len(wrong) else -1,
                count=len(wrong),
                examples=[
                    f"unit {at + 1} begins at queue offset {units['base_queue_offset'][at + 1]}, "
                    f"not {follows[at]}"
                    for at in wrong[:5].tolist()
                ],
            )
