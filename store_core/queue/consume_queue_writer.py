"""Write consume queues: a unit for each message, in the order of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.layout.consume_queue import CQ_UNIT, PRE_BLANK_SIZE

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.queue.consume_queue_ext_writer import ConsumeQueueExtWriter
    from store_core.queue.dispatch_request import DispatchRequests
    from store_core.queue.queue_files import QueueFiles

    Int64s = npt.NDArray[np.int64]

_MAX_QUEUE_OFFSET = 1 << 58  # byte positions stay within 63 bits, 20 bytes a unit


class Appended(NamedTuple):
    """What became of the rows of a call.

    Attributes
    ----------
    units
        Units written.
    known
        Rows that were skipped because their record is in the queue.
    repeated
        Rows that were skipped because their queue offset is taken (or is none).
    moved
        Of ``units`` those that do not stand at their queue offset: units before them are missing.
    """

    units: int = 0
    known: int = 0
    repeated: int = 0
    moved: int = 0


class ConsumeQueueWriter:
    """Appends units to one queue, as RocketMQ ``ConsumeQueue`` does (release 5.3.3).

    A record that is in the queue gets no second extension unit, where RocketMQ leaves an orphan.

    Parameters
    ----------
    files
        Where the units go; ``file_size`` is a multiple of 20.
    next_queue_offset
        End of the units that are there; None: the queue has no file.
    max_physic_offset
        End of the last record that is in the queue; -1 for none.
    ext
        Gets the tags codes, if the store has extensions (``enableConsumeQueueExt``).
    """

    def __init__(
        self,
        files: QueueFiles,
        *,
        next_queue_offset: int | None = None,
        max_physic_offset: int = -1,
        ext: ConsumeQueueExtWriter | None = None,
    ) -> None:
        self._files = files
        self.next_queue_offset = next_queue_offset
        self.max_physic_offset = max_physic_offset
        self._ext = ext

    def append(self, requests: DispatchRequests) -> Appended:
        """Append a unit for each row, in the order of the log.

        Skipped are rows whose record ends at or before ``max_physic_offset``, and rows whose queue
        offset is taken. A row whose queue offset lies ahead is appended all the same.

        Raises
        ------
        OSError
            A file cannot be created or written; the call may be repeated.
        """
        if self._continues(requests):
            return self._place(requests, self.next_queue_offset or 0, Appended())
        end = requests.commit_log_offset + requests.message_size
        before = np.maximum.accumulate(np.concatenate([[self.max_physic_offset], end]))[:-1]
        fresh = end > before
        rows = requests if fresh.all() else requests.take(fresh)
        known = len(requests) - len(rows)
        start = self._start(rows.queue_offset)
        accepted = _accepted(rows.queue_offset, start)
        placed = rows if accepted.all() else rows.take(accepted)
        repeated = len(rows) - len(placed)
        if len(placed) == 0:
            return Appended(known=known, repeated=repeated)
        if self.next_queue_offset is None:
            self._pre_blank(start)
        moved = int((placed.queue_offset != start + np.arange(len(placed))).sum())
        return self._place(placed, start, Appended(0, known, repeated, moved))

    def flush(self) -> None:
        """Make what was written survive a loss of power; extension units first."""
        if self._ext is not None:
            self._ext.flush()
        self._files.flush()

    def _continues(self, requests: DispatchRequests) -> bool:
        """Tell whether the rows are what comes next, without a gap: as nearly always."""
        start, stop = self.next_queue_offset, (self.next_queue_offset or 0) + len(requests)
        begin, size = requests.commit_log_offset, requests.message_size
        if start is None or len(requests) == 0 or stop > _MAX_QUEUE_OFFSET or size.min() <= 0:
            return False
        if (requests.queue_offset != np.arange(start, stop)).any():
            return False
        return bool((begin >= np.append(self.max_physic_offset, (begin + size)[:-1])).all())

    def _place(self, rows: DispatchRequests, start: int, counts: Appended) -> Appended:
        self._write(rows, start)
        self.next_queue_offset = start + len(rows)
        self.max_physic_offset = int(rows.commit_log_offset[-1]) + int(rows.message_size[-1])
        return counts._replace(units=len(rows))

    def _start(self, queue_offset: Int64s) -> int:
        if self.next_queue_offset is not None:
            return self.next_queue_offset
        usable = (queue_offset >= 0) & (queue_offset <= _MAX_QUEUE_OFFSET)
        return int(queue_offset[np.argmax(usable)]) if usable.any() else _MAX_QUEUE_OFFSET

    def _pre_blank(self, start: int) -> None:
        """Fill the file before the first unit (``fillPreBlank``)."""
        count = start % (self._files.file_size // CQ_UNIT.size)
        blank = CQ_UNIT.pack(commit_log_offset=0, message_size=PRE_BLANK_SIZE, tags_code=0)
        self._files.write((start - count) * CQ_UNIT.size, blank * count)

    def _write(self, rows: DispatchRequests, start: int) -> None:
        units = np.empty(len(rows), CQ_UNIT.dtype)
        units["commit_log_offset"] = rows.commit_log_offset
        units["message_size"] = rows.message_size
        units["tags_code"] = rows.tags_code
        if self._ext is not None:
            own = np.flatnonzero(~rows.light)  # light queues hold the plain tags code
            units["tags_code"][own] = self._ext.append(rows.take(own))
        self._files.write(start * CQ_UNIT.size, units.view(np.uint8), continues=True)


def _accepted(queue_offset: Int64s, start: int) -> npt.NDArray[np.bool_]:
    """Tell which rows get a unit when the next one is ``start``.

    Queue offset 0 is never taken for a repetition: so a topic that was deleted begins anew.
    """
    usable: npt.NDArray[np.bool_] = queue_offset >= start + np.arange(len(queue_offset))
    usable |= queue_offset == 0
    usable &= queue_offset <= _MAX_QUEUE_OFFSET
    if usable.all():
        return usable
    at = start
    for row, wanted in enumerate(queue_offset.tolist()):  # each row depends on those before it
        usable[row] = wanted == 0 or at <= wanted <= _MAX_QUEUE_OFFSET
        at += int(usable[row])
    return usable
