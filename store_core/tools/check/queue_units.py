"""One consume queue while it is checked: which of its units were proved by records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.layout.message import SCHEDULE_TOPIC
from store_core.queue.consume_queue_ext import is_ext_address, open_consume_queue_ext
from store_core.tools.check.finding_kinds import FindingKind
from store_core.tools.check.findings import unread
from store_core.tools.check.offset_ranges import OffsetRanges

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.queue.consume_queue_ext import ConsumeQueueExt
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.stored_units import StoredUnits
    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import CheckCounts, Findings

    Bools = npt.NDArray[np.bool_]

_BLOCK_UNITS = 1 << 18  # 5 MB


class MissingRecords:
    """Records of one queue that have no unit; they may turn out to be of an earlier life."""

    def __init__(self) -> None:
        self.count = 0
        self.first = self.last = -1
        self.examples: list[str] = []

    def take_over(self, other: MissingRecords) -> None:
        """Become what another is, which forgets all."""
        self.count, self.examples = other.count, other.examples
        self.first, self.last = other.first, other.last
        other.count, other.examples = 0, []
        other.first = other.last = -1

    def add(self, rows: DispatchRequests) -> None:
        """Note some."""
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
        """Note what another one has, and take it from that."""
        if other.count:
            self.first = other.first if self.first < 0 else self.first
            self.last = max(self.last, other.last)
            self.examples = [*self.examples, *other.examples][:5]
            self.count += other.count
            other.take_over(MissingRecords())


class CheckedQueue:
    """Compares the units of one queue with the records that should be there.

    Opens files for the length of a call only; holds a few numbers a queue. ``is_known`` is False
    where its files may not be read: nothing is said of its units then.
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
        self._ext: ConsumeQueueExt | None = None
        path, ext_path = paths
        config = snapshot.config
        try:
            self._queue = snapshot.open_queue(*key, path)
            if ext_path is not None:
                size = config.mapped_file_size_consume_queue_ext
                self._ext = open_consume_queue_ext(snapshot.directory, ext_path, size)
            self.first = self._queue.first_unit_offset()
            self.end = max(self._queue.end_of_units(), self.first)
        except (CorruptRecordError, StoreFormatError, StoreReadError) as err:
            self._unreadable(err)

    @property
    def first_proved(self) -> int:
        """First queue offset that a record proved; the end of the queue if there is none."""
        ranges = self.proved.ranges()
        return ranges[0][0] if ranges else self.end

    def match(self, rows: DispatchRequests) -> Bools:
        """Return which records have their unit at their queue offset; note units that differ."""
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
        missing = address.copy()
        if self._ext is not None and address.any():
            at = np.flatnonzero(address)
            units = self._ext.read(stored[at])
            missing[at] = ~units.found
            good = units.found & (units.tags_code == rows.tags_code[at])
            good &= units.store_timestamp == rows.store_timestamp[at]
            self._counts.ext_units += int(np.count_nonzero(good))
            same[at[good]] = True
        self._tags(FindingKind.EXT_MISSING, rows, stored, missing)
        wrong = ~missing & ~same
        if self.key[0] == SCHEDULE_TOPIC:
            # A delayed message has its time of delivery there, wherever the queue keeps it.
            self._tags(FindingKind.UNIT_TIME, rows, stored, wrong)
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
        """Yield (queue offset of the first, units) of the stretches that no record proved."""
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
        """Return where files hold units again: a file's name may lie far behind the others."""
        if self._queue is None:
            return self.end
        starts, size = self._queue.file_boundaries(), self._queue.units_per_file
        return next((max(n, queue_offset) for n in starts if n + size > queue_offset), self.end)

    def _block_stop(self, queue_offset: int) -> int:
        """Return where to stop reading: what one lost file hides stays within that file."""
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
