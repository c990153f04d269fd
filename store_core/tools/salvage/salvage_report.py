# SPDX-License-Identifier: Apache-2.0
"""Report of a salvage: the records copied, their new places, and the losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store_core.layout import INNER_ITEM

if TYPE_CHECKING:
    from store_core.log.log_scan import Gap
    from store_core.recovery.lost_end import LostEnd
    from store_core.tools.salvage.log_copy import CorrectedTime, FaultyRecord
    from store_core.tools.salvage.moved_offsets import MovedOffsets, OffsetRun

FORMAT = 1


@dataclass(frozen=True)
class SalvageReport:
    """The result of a salvage.

    Attributes
    ----------
    records, record_bytes
        Number of records copied, and their bytes in the new log.
    undecodable
        Records copied as they are, although no consumer can decode their bodies.
    """

    source: str
    target: str
    log_begin: int
    log_end: int
    log_ends_because: str
    records: int
    record_bytes: int
    gaps: tuple[Gap, ...]
    rejected: tuple[FaultyRecord, ...]
    undecodable: tuple[FaultyRecord, ...]
    corrected_times: tuple[CorrectedTime, ...]
    places: tuple[OffsetRun, ...]
    queues: dict[tuple[str, int], MovedOffsets]
    kept_queues: int
    notes: tuple[str, ...]
    lost_end: LostEnd | None = None

    @property
    def lost_bytes(self) -> int:
        """Bytes of the old log that could not be copied."""
        return sum(g.bytes_lost for g in self.gaps) + sum(r.size for r in self.rejected)

    @property
    def moved_queues(self) -> int:
        """Number of queues in which messages have new offsets."""
        return sum(queue.has_moved for queue in self.queues.values())

    @property
    def missing_messages(self) -> int:
        """Number of queue offsets without a message, between copied messages or after the last."""
        most = self._most_lost
        after = self.lost_end.messages if self.lost_end is not None else 0
        between = (stop - start for q in self.queues.values() for start, stop in q.lost(most))
        return sum(between) + after

    @property
    def _most_lost(self) -> int:
        """Maximum number of messages in the lost bytes; each message of a batch counts."""
        return self.lost_bytes // INNER_ITEM.size

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; ends are exclusive."""
        return {
            "format": FORMAT,
            "source": self.source,
            "target": self.target,
            "log": {
                "begin": self.log_begin,
                "end": self.log_end,
                "ends_because": self.log_ends_because,
                "lost_after_end": None if self.lost_end is None else str(self.lost_end),
            },
            "records": self.records,
            "record_bytes": self.record_bytes,
            "lost_bytes": self.lost_bytes,
            "missing_messages": self.missing_messages,
            "moved_queues": self.moved_queues,
            "kept_queues": self.kept_queues,
            "notes": list(self.notes),
            "gaps": [gap._asdict() for gap in self.gaps],
            "rejected_records": [record._asdict() for record in self.rejected],
            "undecodable_records": [record._asdict() for record in self.undecodable],
            "corrected_store_times": [time._asdict() for time in self.corrected_times],
            "places": [
                {"commit_log_offset": r.old, "new_commit_log_offset": r.new, "bytes": r.length}
                for r in self.places
            ],
            "queues": [
                _queue_row(topic, queue_id, queue, self._most_lost)
                for (topic, queue_id), queue in sorted(self.queues.items())
            ],
        }


def _queue_row(topic: str, queue_id: int, queue: MovedOffsets, most_lost: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "queue_id": queue_id,
        "min_offset": queue.first_offset,
        "max_offset": queue.next_offset,
        "moved": queue.has_moved,
        "runs": [
            {"queue_offset": r.old, "new_queue_offset": r.new, "count": r.length}
            for r in queue.runs
        ],
        "missing": [{"from": start, "to": stop} for start, stop in queue.lost(most_lost)],
    }
