"""What queues and checkpoint of a store said of its log before recovery changed anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.queue.queue_range import points_at_record
from store_core.queue.unit_states import QueueUnitStates

if TYPE_CHECKING:
    from store_core.log.readable_log import ReadableLog
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
        self._log, self._queues = parts.log, parts.queues
        self._last_units = [] if parts.last_exit_ok else self._find_last_units()

    def unit_states(self, offset: int, gap_bytes: int) -> QueueUnitStates:
        """Return what the queues know of the records after a gap of the log.

        Of a store that was stopped cleanly recovery changes no unit before it has decided.
        """
        return QueueUnitStates(self._log, self._units_of, offset, gap_bytes)

    def is_dispatched_behind(self, offset: int) -> bool:
        """Return whether a queue had a unit of a readable record after an offset."""
        return any(_is_record(self._log, *unit) for unit in self._last_units if unit[2] > offset)

    def _units_of(self, topic: str, queue_id: int) -> AnyUnits | None:
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else queue.files_on_disk

    def _find_last_units(self) -> list[tuple[str, int, int, int]]:
        """Return the last units of each queue: topic, queue id, start and size of the record."""
        found = []
        for topic, queue_id in self._queues.queues():
            queue = self._queues.find(topic, queue_id)
            if queue is None:
                continue
            found.append((topic, queue_id, *queue.last_found))
            simple = self._queues.find_simple(topic, queue_id)
            if simple is not None and simple.last_start != simple.last_found[0]:
                size = simple.max_physic_offset - simple.last_start
                found.append((topic, queue_id, simple.last_start, size))
        return found


def _is_record(log: ReadableLog, topic: str, queue_id: int, start: int, size: int) -> bool:
    segment = log.segments.find(start)
    if segment is None:
        return False
    end = segment.from_offset + log.segments.file_size
    frames = log.frames_at(segment, np.array([start], np.int64), end)
    return bool(frames.ok[0]) and points_at_record(log, (topic, queue_id), start, size, end)
