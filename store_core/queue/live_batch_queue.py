"""A batch consume queue that grows: one thread dispatches to it while others read.

Source: RocketMQ ``BatchConsumeQueue`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import StoreReadError
from store_core.files.segment_list import Segment, SegmentList
from store_core.layout.consume_queue import BATCH_CQ_UNIT
from store_core.queue.batch_consume_queue import (
    BatchConsumeQueue,
    max_queue_offset,
    min_queue_offset,
)
from store_core.queue.batch_consume_queue_writer import BatchConsumeQueueWriter
from store_core.queue.file_traces import has_data_behind
from store_core.queue.torn_units import first_torn_batch_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store_core.files.store_directory import StoreDirectory
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.consume_queue_writer import Appended, QueueFiles
    from store_core.queue.dispatch_request import DispatchRequests

    Units = npt.NDArray[np.void]


class LiveBatchQueue:
    """One queue of a topic with ``queue.type=BatchCQ``: a unit a record of several messages.

    Appended to by one thread, read by any; expired by a third. It can be rebuilt from the log.

    Parameters
    ----------
    directory
        The store.
    topic, queue_id
        What it belongs to.
    segments
        Its files.
    files
        The same, to be written.

    Attributes
    ----------
    unit_bytes, file_size
        Bytes of a unit and of a file.
    max_physic_offset
        End of the last record that is in the queue; -1 for none. RocketMQ has its start here.
    lost_from
        As `LiveQueue.lost_from`.
    """

    unit_bytes = BATCH_CQ_UNIT.size

    def __init__(
        self,
        directory: StoreDirectory,
        topic: str,
        queue_id: int,
        segments: SegmentList,
        files: QueueFiles,
    ) -> None:
        self.topic, self.queue_id, self.file_size = topic, queue_id, files.file_size
        self.max_physic_offset = -1
        self.lost_from: int | None = None
        self._files = files
        self._queue = BatchConsumeQueue(directory, topic, queue_id, segments)
        self._wrote = 0  # byte behind the last unit, in the queue
        self._span = (-1, 0)
        self._writer = BatchConsumeQueueWriter(files)
        self._lock = threading.Lock()

    @property
    def min_offset(self) -> int:
        """First queue offset whose record is in the log; -1 without units, as in RocketMQ."""
        return self._span[0]

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last message; 0 without units."""
        return self._span[1]

    def read_units(self) -> Units:
        """Return all units that are there, as a native array, oldest first.

        Raises
        ------
        CorruptRecordError
            A file between others is missing, short or damaged.
        StoreReadError
            A file cannot be read.
        """
        while True:
            queue, wrote = self._queue, self._wrote
            try:
                units = queue.read_units()
            except StoreReadError:
                if self._queue is queue:
                    raise  # else it expired meanwhile
                continue
            return units[: (wrote - queue.segments.min_offset) // self.unit_bytes]

    def recover(self, *, trusted: bool) -> None:
        """Find where the units end (``BatchConsumeQueue.recover``).

        Parameters
        ----------
        trusted
            All files were flushed. Else units out of order end the queue, too.
        """
        units = self._queue.read_units()
        end = len(units)
        if not trusted and end:
            start = units["commit_log_offset"]
            stop = start + units["message_size"]
            base = units["base_queue_offset"]
            good = np.ones(end, bool)
            good[1:] = (start[1:] >= stop[:-1]) & (base[1:] >= base[:-1] + units["batch_size"][:-1])
            end = end if good.all() else int(np.argmin(good))
        self._set_units(units[:end])
        self.lost_from = None
        if not trusted and has_data_behind(
            self._queue.directory, self._queue.segments, self._wrote
        ):
            self.lost_from = max(self.max_physic_offset, 0)

    def append(self, requests: DispatchRequests) -> Appended:
        """Add units (`BatchConsumeQueueWriter.append`); readers see them when all are written."""
        with self._lock:
            appended = self._writer.append(requests)
            if appended.units:
                wrote = self._writer.wrote_position
                first = self._span[0]
                self._add_files(wrote)
                last = self._unit_at(wrote - self.unit_bytes)
                if first < 0:
                    begin = wrote - appended.units * self.unit_bytes
                    first = int(self._unit_at(begin)["base_queue_offset"][0])
                self.max_physic_offset = int(last["commit_log_offset"][0] + last["message_size"][0])
                self._wrote = wrote
                self._span = (first, max_queue_offset(last))
            return appended

    def cut_torn(self, requests: DispatchRequests) -> int:
        """Cut the queue at the first unit that a power failure tore; see `LiveQueue.cut_torn`."""
        rows = requests.take((requests.base_queue_offset >= 0) & (requests.batch_size > 0))
        if len(rows) == 0:
            return 0
        units = self.read_units()
        start = int(np.searchsorted(units["commit_log_offset"], rows.commit_log_offset[0]))
        stored = units[start : start + len(rows)].astype(BATCH_CQ_UNIT.dtype)
        torn = first_torn_batch_unit(stored, rows)
        if torn is None:
            return 0
        self.truncate(start + torn)
        return len(units) - start - torn

    def end_below(self, phy_offset: int) -> int:
        """Return how many units are of records below an offset of the log."""
        units = self.read_units()
        return int(np.count_nonzero(units["commit_log_offset"] < phy_offset))

    def proved_end(self, log: ReadableLog) -> int:
        """Return where the queue ends; batch units are not compared with records."""
        return self.max_offset

    def truncate(self, end: int, *, on_disk: bool = True) -> bool:
        """Keep so many units, erase what lies behind on the disk; True if there were others."""
        with self._lock:
            units = self.read_units()[:end]
            begin = self._queue.segments.min_offset
            kept = begin + len(units) * self.unit_bytes
            changed = kept < self._wrote
            while on_disk and len(segments := self._queue.segments.segments):
                if segments[-1].from_offset < kept:
                    break
                self._files.delete(segments[-1].from_offset)
                self._set_segments(segments[:-1])
            if on_disk:
                self._files.erase(kept)
            self._set_units(units)
            if changed:
                self.lost_from = max(self.max_physic_offset, 0)
            return changed

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Move the first queue offset to the first record that is in the log."""
        with self._lock:
            first = min_queue_offset(self.read_units(), min_phy_offset)
            self._span = (first, self._span[1])

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files, oldest first, of which no record is left; return how many.

        Never the last file.
        """
        self.correct_min_offset(min_phy_offset)
        count = 0
        for segment in self._queue.segments.segments[:-1]:
            last = self._unit_at(segment.from_offset + self.file_size - self.unit_bytes)
            if int(last["commit_log_offset"][0]) >= min_phy_offset:
                break
            with self._lock:
                self._set_segments(self._queue.segments.segments[1:])
                self._files.delete(segment.from_offset)
            count += 1
        return count

    def flush(self) -> None:
        """Make what was appended survive a loss of power."""
        self._writer.flush()

    def destroy(self) -> None:
        """Delete all files."""
        self.truncate(0)

    def _set_units(self, units: Units) -> None:
        self._wrote = self._queue.segments.min_offset + len(units) * self.unit_bytes
        self.max_physic_offset, start = -1, -1
        if len(units):
            start = int(units["commit_log_offset"][-1])
            self.max_physic_offset = start + int(units["message_size"][-1])
        self._span = (min_queue_offset(units, 0), max_queue_offset(units))
        self._writer = BatchConsumeQueueWriter(
            self._files, wrote_position=self._wrote, max_physic_offset=start
        )

    def _unit_at(self, position: int) -> Units:
        inside = position % self.file_size
        path = str(self._files.path(position - inside))
        with self._queue.directory.open(path) as source:
            return BATCH_CQ_UNIT.table(source.read_at(inside, self.unit_bytes))

    def _add_files(self, stop: int) -> None:
        known, size = self._queue.segments.segments, self.file_size
        begin = known[-1].from_offset + size if known else 0
        added = [Segment(at, str(self._files.path(at)), size) for at in range(begin, stop, size)]
        if added:
            self._set_segments((*known, *added))

    def _set_segments(self, segments: Sequence[Segment]) -> None:
        queue = self._queue
        self._queue = BatchConsumeQueue(
            queue.directory, self.topic, self.queue_id, SegmentList(segments, self.file_size)
        )
