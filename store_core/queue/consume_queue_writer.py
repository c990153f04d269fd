# SPDX-License-Identifier: Apache-2.0
"""Write consume queues: one unit per message, in log order.

Source: RocketMQ ``ConsumeQueue`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Callable, NamedTuple

import numpy as np

from store_core.errors import StoreReadError
from store_core.layout import CQ_UNIT, PRE_BLANK_SIZE
from store_core.queue.consume_queue import FILES_RECOVERED, NATIVE_CQ_UNIT, ConsumeQueue
from store_core.queue.queue_files import QueueWriter
from store_core.queue.queue_range import proved_end
from store_core.queue.unit_placement import (
    Appended,
    few_units,
    first_torn_ext_unit,
    first_torn_unit,
    place_units,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy.typing as npt

    from store_core.files.segment_list import Segment
    from store_core.log.commit_log import ReadableLog
    from store_core.queue.consume_queue_ext import ConsumeQueueExtWriter
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_files import QueueFiles

    Units = npt.NDArray[np.void]

logger = logging.getLogger(__name__)
_BLOCK_UNITS = 1 << 16
_FEW_UNITS, _MANY_UNITS = 64, 2048
"""A read of more than few and fewer than many units is extended: the next ones will be read too."""
_NEWEST_BYTES = 64 * CQ_UNIT.size  # of each queue
_BLOCKS = 256  # of at most 40 KB


class ConsumeQueueWriter(QueueWriter):
    """One queue that grows: its units, and their current range.

    A record that is already in the queue gets no second extension unit; RocketMQ leaves an orphan
    there. Files are open only during a call. The queue can be rebuilt from the log.

    Attributes
    ----------
    last_start
        Start of the queue's last record when it was last recovered or cut; -1 if it had none.
    """

    unit_bytes = CQ_UNIT.size

    def __init__(
        self,
        queue: ConsumeQueue,
        files: QueueFiles,
        recent: RecentUnits,
        ext: ConsumeQueueExtWriter | None = None,
    ) -> None:
        key = (queue.topic, queue.queue_id)
        super().__init__(queue.directory, key, queue.segments, files, (0, 0))
        self._queue = queue
        self._recent = recent
        self._newest: NewestUnits | None = None
        self._version = 0  # counts cuts: other units take the places of those that were cut off
        self.last_start = -1
        self._ext = ext
        self._first = (-1, -1)  # first unit in the files, and its record's start

    def on_disk(self) -> ConsumeQueue:
        """Return the units that are in the files, even past the end that `recover` set."""
        return self._queue

    def read_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return the units ``[start, stop)`` as a native array, clipped to the queue's range.

        Do not write to it. Row 0 is queue offset ``max(start, min_offset)``; there are no fillers.

        Raises
        ------
        CorruptRecordError
            A file between others is missing or short.
        StoreReadError
            A file cannot be read.
        """
        return self._clipped(start_queue_offset, stop_queue_offset, self._read)

    def file_stop(self, queue_offset: int) -> int:
        """Return the end, in queue offsets, of the file that contains one, or did before expiry."""
        return self._queue.roll_next_file(queue_offset)

    roll_next_file = file_stop

    def stored_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return `read_units` always from the files, never from memory, to check the files.

        Raises as `read_units`.
        """
        return self._clipped(
            start_queue_offset,
            stop_queue_offset,
            lambda _version, start, stop, _high: self._queue.read_units(start, stop),
        )

    def _clipped(
        self,
        start_queue_offset: int,
        stop_queue_offset: int,
        read: Callable[[int, int, int, int], Units],
    ) -> Units:
        while True:
            version = self._version
            low, high = span = self._span
            start = max(start_queue_offset, low)
            try:
                return read(version, start, min(stop_queue_offset, high), high)
            except StoreReadError:
                if self._span == span:
                    raise  # else a file has expired meanwhile

    def _read(self, version: int, start: int, stop: int, high: int) -> Units:
        """Return the units ``[start, stop)``; caches some units that follow, below ``high``."""
        for block in (self._newest, self._recent.find(self)):
            held = None if block is None else block.part(version, start, stop)
            if held is not None:
                return held
        if not _FEW_UNITS < stop - start < _MANY_UNITS:
            return self._queue.read_units(start, stop)
        file_stop = self._queue.roll_next_file(start)
        end = max(min(start + _MANY_UNITS, file_stop, high), stop)
        units = self._queue.read_units(start, end)
        if len(units) == end - start:
            self._recent.keep(self, UnitBlock(version, start, units))
        return units[: stop - start]

    def recover(self, *, trusted: bool) -> None:
        """Find the end of the units (``ConsumeQueue.recover``)."""
        end = self._queue.end_of_units()
        if not trusted:
            end = self._first_hole(end)
        self._set_end(end)
        self._look_for_loss(end * self.unit_bytes, trusted=trusted)
        self.last_found = (self.last_start, self.max_physic_offset - self.last_start)
        if self.lost_from is not None:
            self.last_found = self._last_found()

    def append(self, requests: DispatchRequests, *, from_zero: bool = False) -> Appended:
        """Add a unit for each row (`place_units`); readers see them when all are written.

        Raises
        ------
        OSError
            A file cannot be created or written; the call may be repeated.
        """
        with self._lock:
            if self._ext is not None:
                self._ext.ready()
            is_empty = self.max_physic_offset < 0
            if not is_empty and self._ext is None:
                units = few_units(requests, self.max_offset, self.max_physic_offset)
                if units is not None:
                    self._append_units(units, self.max_offset, self.min_offset)
                    return Appended(len(requests))
            next_offset = None if is_empty else self.max_offset
            rows, start, counts = place_units(
                requests, next_offset, self.max_physic_offset, from_zero=from_zero
            )
            if len(rows):
                if is_empty:
                    self._pre_blank(start)
                self._append_units(self._units(rows), start, start if is_empty else self.min_offset)
            return counts

    def cut_torn(
        self, requests: DispatchRequests, before: Callable[[], None] = lambda: None
    ) -> int:
        """Cut the queue at the first unit torn by a power failure; return how many units were cut.

        `append` adds them again. Compares the units from the first row's record on, at most as many
        as there are rows. ``before`` is called before anything is cut, and may raise.
        """
        held = requests.commit_log_offset < self.max_physic_offset
        rows = requests if held.all() else requests.take(held)
        if len(rows) == 0:
            return 0
        start = self._queue.correct_min_offset(int(rows.commit_log_offset[0]), self.max_offset)
        stored = self.stored_units(start, start + len(rows)).astype(CQ_UNIT.dtype)
        if len(stored) == 0:  # the last unit claims the bytes of these rows too
            return 0
        if self._ext is None:
            torn = first_torn_unit(stored, rows)
        else:
            torn = first_torn_ext_unit(stored, rows, self._ext.read)
        if torn is None:
            return 0
        before()
        count = self.max_offset - start - torn
        self.truncate(start + torn)
        return count

    def border_units(self) -> list[tuple[int, tuple[int, int, int]]]:
        """Return the first and the last unit of each file, each with its queue offset."""
        (low, high), count = self._span, self._queue.units_per_file
        firsts = [low, *range(low - low % count + count, high, count)] if low < high else []
        places = sorted({*firsts, *(at - 1 for at in firsts[1:]), *([high - 1] if firsts else [])})
        return [(at, self.stored_units(at, at + 1)[0].item()) for at in places]

    def end_below(self, phy_offset: int) -> int:
        """Return the queue offset after the units of records before an offset of the log."""
        if self.max_physic_offset <= phy_offset:  # usual, and opens no file
            return self.max_offset
        return min(self._queue.correct_min_offset(phy_offset, self.max_offset), self.max_offset)

    def proved_end(self, log: ReadableLog) -> int:
        """Return the queue offset after the last unit that points at a record of this queue."""
        segments = list(log.segments)
        log_end = segments[-1].from_offset + log.segments.file_size if segments else 0
        return proved_end(self._queue, log, log_end, self.max_offset)

    def truncate(self, end: int, *, on_disk: bool = True) -> bool:
        """Cut off the units from a queue offset on; return whether there were any.

        Everything after becomes zeros on the disk, even bytes that were no longer units. RocketMQ
        leaves them, and they count again once the log has grown. Fillers that no unit follows are
        cut off too. Without ``on_disk`` only this object changes, to try out a recovery.
        """
        with self._lock:
            end = min(end, self.max_offset)
            changed = end < self._span[1] and self._span[0] < self._span[1]
            if on_disk and end == self.max_offset and self.max_physic_offset >= 0:
                self._erase(end)
                if self._ext is not None:
                    self._ext.ready()
            elif on_disk:
                self._cut(end)
            else:
                self._set_end(end if end > self._queue.first_unit_offset() else 0)
            if changed:
                self._note_loss()
            return changed

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Move the first queue offset to the first record that is still in the log."""
        with self._lock:
            low, high = self._span
            if self.max_physic_offset < 0:
                low = high
            elif low != self._first[0] or self._first[1] < min_phy_offset:
                low = self._queue.correct_min_offset(min_phy_offset, high)
            self._span = (low, high)
            if self._ext is not None and low < high:
                self._ext.delete_before(self._queue.read_units(low, low + 1))

    def flush(self, least_pages: int = 0) -> None:
        """Make appended units survive a power loss, extension units first.

        If fewer than ``least_pages`` pages wait, nothing is flushed, the extension included.
        """
        if not self.is_worth_flush(least_pages):
            return
        if self._ext is not None:
            self._ext.flush()
        self._files.flush(least_pages)

    def destroy(self) -> None:
        """Delete all files."""
        with self._lock:
            self._span = (0, 0)
            while self._segments:
                self._delete_last()
            self._set_end(0)
            self._recent.forget(self)
            if self._ext is not None:
                self._ext.destroy()

    def _set_segments(self, segments: Sequence[Segment]) -> None:
        super()._set_segments(segments)
        self._queue = ConsumeQueue(self._directory, self.topic, self.queue_id, self._listed)

    def _pre_blank(self, start: int) -> None:
        """Fill the file before the first unit (``fillPreBlank``)."""
        count = start % self._queue.units_per_file
        blank = CQ_UNIT.pack(commit_log_offset=0, message_size=PRE_BLANK_SIZE, tags_code=0)
        self._files.write((start - count) * CQ_UNIT.size, blank * count)

    def _append_units(self, data: bytes, start: int, first: int) -> None:
        """Write at least one unit from a queue offset on; the queue then begins at ``first``."""
        self._files.write(start * CQ_UNIT.size, data, continues=True)
        end = start + len(data) // CQ_UNIT.size
        self._keep_newest(data, start)
        self._know_files(first, end)
        last = CQ_UNIT.unpack(data, len(data) - CQ_UNIT.size)
        self.max_physic_offset = last.commit_log_offset + last.message_size
        self._span = (first, end)

    def _keep_newest(self, data: bytes, start: int) -> None:
        """Keep the last units in memory, so that readers that wait for them open no file."""
        before = self._newest
        if len(data) > _NEWEST_BYTES:
            self._newest = None
            return
        if before is not None and before.start + len(before.data) // CQ_UNIT.size == start:
            start, data = before.start, before.data + data
        cut = max(len(data) - _NEWEST_BYTES, 0)
        self._newest = NewestUnits(self._version, start + cut // CQ_UNIT.size, data[cut:])

    def _units(self, rows: DispatchRequests) -> bytes:
        """Return the units of rows as stored."""
        units = np.empty(len(rows), CQ_UNIT.dtype)
        units["commit_log_offset"] = rows.commit_log_offset
        units["message_size"] = rows.message_size
        units["tags_code"] = rows.tags_code
        if self._ext is not None:
            own = np.flatnonzero(~rows.light)  # light queues have plain tags codes
            units["tags_code"][own] = self._ext.append(rows.take(own))
        return units.tobytes()

    def _first_hole(self, end: int) -> int:
        """Return the first invalid or misplaced unit of the last files; ``end`` if none is."""
        segments = self._segments[-FILES_RECOVERED:]
        at = segments[0].from_offset // self.unit_bytes if segments else 0
        at, before = max(at, self._queue.first_unit_offset()), -1
        while at < end:
            units = self._queue.read_units(at, min(at + _BLOCK_UNITS, end))
            start = units["commit_log_offset"]
            stop = start + units["message_size"]
            good = (start >= np.concatenate([[before], stop[:-1]])) & (stop > start) & (start >= 0)
            if not good.all():
                return at + int(np.argmin(good))
            at, before = at + len(units), int(stop[-1])
        return end

    def _last_found(self) -> tuple[int, int]:
        """Return start and size of the record of the last unit in the files; (-1, 0) if none."""
        files = self._queue.segments
        begin, at = (files.min_offset // self.unit_bytes, files.max_offset // self.unit_bytes)
        while at > begin:
            low = max(at - _BLOCK_UNITS, begin)
            units = self._queue.read_units(low, at)
            good = np.flatnonzero((units["commit_log_offset"] >= 0) & (units["message_size"] > 0))
            if len(good):
                last = units[good[-1]]
                return int(last["commit_log_offset"]), int(last["message_size"])
            at = low
        return -1, 0

    def _set_end(self, end: int) -> None:
        """Set the end of the units to a queue offset."""
        first = min(self._queue.first_unit_offset(), end)
        self.max_physic_offset = self.last_start = -1
        if end > first:
            last = self._queue.read_units(end - 1, end)
            self.last_start = int(last["commit_log_offset"][0])
            self.max_physic_offset = self.last_start + int(last["message_size"][0])
            unit = last if end == first + 1 else self._queue.read_units(first, first + 1)
            self._first = (first, int(unit["commit_log_offset"][0]))
        else:  # only fillers, or nothing: the queue offset is that of the file's name
            first = end = self._queue.segments.min_offset // self.unit_bytes
        self._span = (first, end)
        self._newest = None
        self._version += 1  # last: blocks that readers have read before do not match it
        if self._ext is not None:
            self._ext.recover(self._last_files())

    def _last_files(self) -> Units:
        low, high = self._span
        per_file = self._queue.units_per_file
        begin = high - high % per_file - (FILES_RECOVERED - 1) * per_file
        return self._queue.read_units(max(begin, low), high)

    def _cut(self, end: int) -> None:
        first = self._queue.first_unit_offset()
        kept = end * self.unit_bytes
        if end <= first:  # the first file stays, without units, if its name gives an offset
            kept = self._queue.segments.min_offset
        while self._segments and self._segments[-1].from_offset >= kept:
            if kept and len(self._segments) == 1:
                break
            self._delete_last()
        self._erase(kept // self.unit_bytes)
        self._set_end(end if end > first else 0)
        if self._ext is not None:
            self._ext.erase_behind()

    def _erase(self, end: int) -> None:
        """Put zeros after a queue offset, and delete the files after its file."""
        kept = end * self.unit_bytes
        while len(self._segments) > 1 and self._segments[-1].from_offset > kept:
            self._delete_last()
        if self._segments and self._files.erase(kept):
            logger.info("erased the units from %d on in queue %d of topic %s",
                        end, self.queue_id, self.topic)  # fmt: skip

    def _know_files(self, first: int, end: int) -> None:
        """Make the files of the units ``[first, end)`` visible to readers."""
        begin = first * self.unit_bytes
        begin -= begin % self.file_size
        known = self._segments
        if self.max_physic_offset < 0:
            for segment in known:  # left for its name, or to be overwritten, as some just were
                if not begin <= segment.from_offset < end * self.unit_bytes:
                    self._files.delete(segment.from_offset)
            known = ()
        self._add_files(known, begin, end * self.unit_bytes)

    def _last_record(self, segment: Segment) -> int:
        stop = segment.from_offset // self.unit_bytes + self._queue.units_per_file
        return int(self._queue.read_units(stop - 1, stop)["commit_log_offset"][0])


class UnitBlock(NamedTuple):
    """Consecutive units of one queue."""

    version: int
    start: int
    units: Units

    def part(self, version: int, start: int, stop: int) -> Units | None:
        """Return the units ``[start, stop)`` if the block has them all, in this version."""
        at, end = start - self.start, stop - self.start
        is_here = version == self.version and 0 <= at <= end <= len(self.units)
        return self.units[at:end] if is_here else None


class NewestUnits(NamedTuple):
    """The last units appended, as stored; decoded on demand, as nearly none of them are read.

    Attributes
    ----------
    data
        The units' bytes.
    """

    version: int
    start: int
    data: bytes

    def part(self, version: int, start: int, stop: int) -> Units | None:
        """Return the units ``[start, stop)``, as `UnitBlock.part` does."""
        at, end = start - self.start, stop - self.start
        if version != self.version or not 0 <= at <= end <= len(self.data) // CQ_UNIT.size:
            return None
        units = CQ_UNIT.table(self.data, at * CQ_UNIT.size, end - at).astype(NATIVE_CQ_UNIT)
        units.flags.writeable = False
        return units


class RecentUnits:
    """A cache of one block per queue, limited to the newest blocks; for any thread."""

    def __init__(self) -> None:
        self._blocks: dict[Hashable, UnitBlock] = {}
        self._lock = threading.Lock()

    def find(self, queue: Hashable) -> UnitBlock | None:
        """Return the block of a queue; None if there is none."""
        return self._blocks.get(queue)

    def keep(self, queue: Hashable, block: UnitBlock) -> None:
        """Add a block; it replaces the queue's previous one or, in a full cache, the oldest."""
        block.units.flags.writeable = False
        with self._lock:
            self._blocks.pop(queue, None)
            if len(self._blocks) >= _BLOCKS:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[queue] = block

    def forget(self, queue: Hashable) -> None:
        """Drop the block of a queue that is deleted."""
        with self._lock:
            self._blocks.pop(queue, None)
