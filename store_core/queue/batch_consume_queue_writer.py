# SPDX-License-Identifier: Apache-2.0
"""Write batch consume queues: one unit per record, which may contain several messages.

Source: RocketMQ ``BatchConsumeQueue`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.errors import StoreReadError
from store_core.layout import BATCH_CQ_UNIT
from store_core.queue.batch_consume_queue import (
    max_queue_offset,
    min_queue_offset,
    read_batch_units,
)
from store_core.queue.queue_files import QueueWriter
from store_core.queue.queue_range import points_at_record
from store_core.queue.unit_placement import Appended, believed_bases, first_torn_batch_unit

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.files.segment_list import Segment, SegmentList
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.commit_log import ReadableLog
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_files import QueueFiles

    Units = npt.NDArray[np.void]

_NOT_COMPACTED = -1


class BatchConsumeQueueWriter(QueueWriter):
    """One queue of a topic with ``queue.type=BatchCQ``: one unit per record of several messages.

    It can be rebuilt from the log. Without units its ``min_offset`` is -1, as in RocketMQ.
    RocketMQ's ``max_physic_offset`` is the start of the last record; here it is the record's end.
    """

    unit_bytes = BATCH_CQ_UNIT.size

    def __init__(
        self,
        directory: StoreDirectory,
        key: tuple[str, int],
        listed: SegmentList,
        files: QueueFiles,
    ) -> None:
        super().__init__(directory, key, listed, files, (-1, 0))
        self._wrote = 0  # byte after the last unit, in the queue
        self._last_start = -1  # of the last record that is in the queue

    def on_disk(self) -> Units:
        """Return the units that are in the files now, even past the end that `recover` set."""
        return read_batch_units(self._directory, self._listed)

    def read_units(self) -> Units:
        """Return all units of the queue as a native array, oldest first.

        Raises
        ------
        CorruptRecordError
            A file between others is missing, short or damaged.
        StoreReadError
            A file cannot be read.
        """
        while True:
            listed, wrote = self._listed, self._wrote
            try:
                units = read_batch_units(self._directory, listed)
            except StoreReadError:
                if self._listed is listed:
                    raise  # else a file has expired meanwhile
                continue
            return units[: (wrote - listed.min_offset) // self.unit_bytes]

    def recover(self, *, trusted: bool) -> None:
        """Find the end of the units (``BatchConsumeQueue.recover``)."""
        units = self.on_disk()
        end = len(units)
        if not trusted:
            good = _in_order(units)
            end = end if good.all() else int(np.argmin(good))
        self._set_units(units[:end])
        if len(units):
            last = units[-1]
            self.last_found = (int(last["commit_log_offset"]), int(last["message_size"]))
        self._look_for_loss(self._wrote, trusted=trusted)

    def append(self, requests: DispatchRequests, *, from_zero: bool = False) -> Appended:
        """Add a unit for each row, in log order; readers see them when all are written.

        Skips rows whose record starts at or before the last one in the queue, and rows that would
        make an invalid unit: without messages, or with a negative queue offset. A row whose
        neighbours contradict its queue offset gets the next one (`believed_bases`).

        Raises
        ------
        OSError
            A file cannot be created or written; the call may be repeated.
        """
        with self._lock:
            start = requests.commit_log_offset
            before = np.maximum.accumulate(np.concatenate([[self._last_start], start]))[:-1]
            fresh = start > before
            rows = requests.take(fresh & (requests.batch_size > 0))
            rows = replace(rows, base_queue_offset=self._bases(rows, from_zero=from_zero))
            rows = rows.take(rows.base_queue_offset >= 0)
            known = len(requests) - int(fresh.sum())
            if len(rows):
                self._write(rows)
                wrote = self._wrote + len(rows) * self.unit_bytes
                first = self._span[0]
                self._add_files(self._segments, 0, wrote)
                if first < 0:
                    first = int(rows.base_queue_offset[0])
                self._last_start, self._wrote = int(rows.commit_log_offset[-1]), wrote
                self.max_physic_offset = self._last_start + int(rows.message_size[-1])
                end = int(rows.base_queue_offset[-1]) + int(rows.batch_size[-1])
                self._span = (first, end)
            return Appended(len(rows), known, len(requests) - known - len(rows))

    def _bases(self, rows: DispatchRequests, *, from_zero: bool) -> npt.NDArray[np.int64]:
        next_offset = self._span[1] if self.max_physic_offset >= 0 else 0 if from_zero else None
        return believed_bases(rows.base_queue_offset, rows.batch_size, next_offset)

    def cut_torn(
        self, requests: DispatchRequests, before: Callable[[], None] = lambda: None
    ) -> int:
        """Cut the queue at the first unit torn by a power failure; return how many units were cut.

        ``before`` is called before anything is cut, and may raise.
        """
        rows = requests.take((requests.base_queue_offset >= 0) & (requests.batch_size > 0))
        if len(rows) == 0:
            return 0
        units = self.read_units()
        start = int(np.searchsorted(units["commit_log_offset"], rows.commit_log_offset[0]))
        stored = units[start : start + len(rows)].astype(BATCH_CQ_UNIT.dtype)
        torn = first_torn_batch_unit(stored, rows)
        if torn is None:
            return 0
        before()
        self.truncate(start + torn)
        return len(units) - start - torn

    def end_below(self, phy_offset: int) -> int:
        """Return how many units belong to records before an offset of the log."""
        units = self.read_units()
        return int(np.count_nonzero(units["commit_log_offset"] < phy_offset))

    def proved_units(self, log: ReadableLog) -> int:
        """Return how many leading units are in order and point into the log, the last at a record.

        If a unit points past the log's end, every record of the queue passes for dispatched.
        """
        units = self.read_units()
        log_end = max((s.from_offset + log.segments.file_size for s in log.segments), default=0)
        good = _in_order(units) & (units["commit_log_offset"] + units["message_size"] <= log_end)
        end = len(units) if good.all() else int(np.argmin(good))
        places = zip(units["commit_log_offset"][:end].tolist(), units["message_size"].tolist())
        key = (self.topic, self.queue_id)
        for start, size in reversed([*places]):
            if points_at_record(log, key, start, size, log_end):
                break
            end -= 1
        return end

    def truncate(self, end: int, *, on_disk: bool = True) -> bool:
        """Cut the queue after ``end`` units, erase the rest on the disk; True if any were cut."""
        with self._lock:
            units = self.read_units()[:end]
            begin = self._listed.min_offset
            kept = begin + len(units) * self.unit_bytes
            changed = kept < self._wrote
            while on_disk and self._segments and self._segments[-1].from_offset >= kept:
                self._delete_last()
            if on_disk:
                self._files.erase(kept)
            self._set_units(units)
            if changed:
                self._note_loss()
            return changed

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Move the first queue offset to the first record that is still in the log."""
        with self._lock:
            first = min_queue_offset(self.read_units(), min_phy_offset)
            self._span = (first, self._span[1])

    def destroy(self) -> None:
        """Delete all files."""
        self.truncate(0)

    def _set_units(self, units: Units) -> None:
        self._wrote = self._listed.min_offset + len(units) * self.unit_bytes
        self.max_physic_offset = self._last_start = -1
        if len(units):
            self._last_start = int(units["commit_log_offset"][-1])
            self.max_physic_offset = self._last_start + int(units["message_size"][-1])
        self._span = (min_queue_offset(units, 0), max_queue_offset(units))

    def _write(self, rows: DispatchRequests) -> None:
        units = np.zeros(len(rows), BATCH_CQ_UNIT.dtype)
        units["commit_log_offset"] = rows.commit_log_offset
        units["message_size"] = rows.message_size
        units["tags_code"] = rows.tags_code
        units["store_timestamp"] = rows.store_timestamp
        units["base_queue_offset"] = rows.base_queue_offset
        units["batch_size"] = rows.batch_size
        units["compacted_offset"] = _NOT_COMPACTED
        self._files.write(self._wrote, units.view(np.uint8), continues=True)

    def _unit_at(self, position: int) -> Units:
        inside = position % self.file_size
        path = str(self._files.path(position - inside))
        with self._directory.open(path) as source:
            return BATCH_CQ_UNIT.table(source.read_at(inside, self.unit_bytes))

    def _last_record(self, segment: Segment) -> int:
        last = self._unit_at(segment.from_offset + self.file_size - self.unit_bytes)
        return int(last["commit_log_offset"][0])


def _in_order(units: Units) -> npt.NDArray[np.bool_]:
    """Return which units follow their predecessor both in the log and in the queue."""
    start, base = units["commit_log_offset"], units["base_queue_offset"]
    stop = start + units["message_size"]
    good = np.ones(len(units), bool)
    good[1:] = (start[1:] >= stop[:-1]) & (base[1:] >= base[:-1] + units["batch_size"][:-1])
    return good
