"""What queues and checkpoint of a store said of its log before recovery changed anything."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.queue.lost_end import find_lost_end
from store_core.queue.queue_range import points_at_record
from store_core.queue.unit_states import QueueUnitStates
from store_core.queue.units_behind import unit_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.log.end_rules import Failure
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.consume_queue_store import AnyQueueWriter, QueueKey
    from store_core.queue.lost_end import LostEnd
    from store_core.queue.unit_states import AnyUnits
    from store_core.recovery.recovery_dispatch import RecoveryParts


class QueueEvidence:
    """Evidence for ``recovery_plan.judge_cut``; made before any unit is put or cut.

    Parameters
    ----------
    parts
        Log, queues and checkpoint, as they were found.
    """

    def __init__(self, parts: RecoveryParts) -> None:
        checkpoint = parts.checkpoint
        self.stopped_cleanly, self.is_slave = parts.last_exit_ok, parts.config.is_slave
        self.confirm_phy_offset = checkpoint.confirm_phy_offset
        self.logics_msg_timestamp = checkpoint.logics_msg_timestamp
        self.physic_msg_timestamp = checkpoint.physic_msg_timestamp
        self._log, self._queues, self._witness = parts.log, parts.queues, parts.witness
        self._last_dispatched = -1 if parts.last_exit_ok else self._find_last_dispatched()

    def unit_states(self, offset: int, gap_bytes: int) -> QueueUnitStates:
        """Return what the queues know of the records after a gap of the log.

        Of a store that was stopped cleanly recovery changes no unit before it has decided.
        """
        return QueueUnitStates(self._log, self._units_of, self._queues.queues(), offset, gap_bytes)

    def is_dispatched_behind(self, offset: int) -> bool:
        """Return whether a queue had a unit of a readable record after an offset."""
        return self._last_dispatched > offset

    def lost_end(self, end: Failure) -> LostEnd | None:
        """Return what followed the end of the log, and is gone."""
        return None if self._witness is None else find_lost_end(self._log, end, self._witness)

    def _units_of(self, topic: str, queue_id: int) -> AnyUnits | None:
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else queue.files_on_disk

    def _find_last_dispatched(self) -> int:
        """Return the start of the last readable record to which any unit refers; -1: there is none.

        The last unit of a queue may be that of a damaged record.
        """
        found = [(*queue.last_found, key) for key, queue in self._held()]
        last = -1
        for start, size, key in sorted(found, reverse=True):
            if start <= last:
                break
            if _is_record(self._log, key, start, size):
                last = start
            else:
                last = max(last, self._newest_record(key, last))
        return last

    def _held(self) -> Iterator[tuple[QueueKey, AnyQueueWriter]]:
        for key in self._queues.queues():
            queue = self._queues.find(*key)
            if queue is not None:
                yield key, queue

    def _newest_record(self, key: QueueKey, above: int) -> int:
        """Return the start of the last record of any unit of a queue, if after ``above``; or -1."""
        with suppress(CorruptRecordError, StoreFormatError, StoreReadError):
            units = self._units_of(*key)
            for block in unit_blocks(units) if units is not None else ():
                starts = block.start[block.start > above]
                if len(starts) == 0 < len(block.start):
                    break
                sizes = dict(zip(block.start.tolist(), block.size.tolist()))
                for start in _readable(self._log, np.unique(starts)):
                    if _is_record(self._log, key, start, sizes[start]):
                        return start
        return -1


def _readable(log: ReadableLog, starts: npt.NDArray[np.int64]) -> Iterator[int]:
    """Yield which of some offsets (ascending) are those of records, the last first."""
    for segment in reversed(list(log.segments)):
        end = segment.from_offset + log.segments.file_size
        inside = starts[(starts >= segment.from_offset) & (starts < end)]
        if len(inside):
            yield from inside[log.frames_at(segment, inside, end).ok].tolist()[::-1]


def _is_record(log: ReadableLog, key: QueueKey, start: int, size: int) -> bool:
    segment = log.segments.find(start)
    if segment is None:
        return False
    end = segment.from_offset + log.segments.file_size
    frames = log.frames_at(segment, np.array([start], np.int64), end)
    return bool(frames.ok[0]) and points_at_record(log, key, start, size, end)
