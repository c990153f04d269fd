"""Check the offsets of consumer groups against their queues."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from store_core.config.config_files import load_consumer_offsets
from store_core.errors import CorruptRecordError, StoreError, StoreFormatError, StoreReadError
from store_core.queue.batch_consume_queue import max_queue_offset, min_queue_offset
from store_core.state.store_state import StoreState
from store_core.tools.check.finding_kinds import FindingKind

if TYPE_CHECKING:
    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.check.findings import Findings

_DAMAGED = (CorruptRecordError, StoreFormatError, StoreReadError)


def check_consumer_offsets(snapshot: StoreSnapshot, findings: Findings) -> None:
    """Note offsets beyond the end of their queue, or before its begin.

    Those of a deleted topic are left out; and of a running broker all: its queues have grown since
    the end of the log was found.
    """
    if snapshot.kind.config_databases or snapshot.kind.queue_database:
        return
    if snapshot.state is StoreState.LIVE:
        return
    offsets = {}
    with suppress(StoreError):  # what is wrong with the files is found elsewhere
        offsets = load_consumer_offsets(snapshot.directory)
    bounds: dict[tuple[str, int], tuple[int, int] | None] = {}
    for (group, topic), queues in sorted(offsets.items()):
        for queue_id, offset in sorted(queues.items()):
            if (topic, queue_id) not in bounds:
                bounds[topic, queue_id] = _bounds(snapshot, topic, queue_id)
            found = bounds[topic, queue_id]
            if found is not None:
                _compare(findings, f"{group} in {topic}/{queue_id}", offset, found)


def _compare(findings: Findings, place: str, offset: int, bounds: tuple[int, int]) -> None:
    begin, end = bounds
    if offset > end:
        text = f"offset {offset}, the queue ends at {end}"
        kind, count = FindingKind.OFFSET_BEYOND_END, offset - end
    elif 0 <= offset < begin:
        text = f"offset {offset}, the queue begins at {begin}"
        kind, count = FindingKind.OFFSET_EXPIRED, begin - offset
    else:
        return
    findings.add(kind, place, position=offset, count=count, examples=[text])


def _bounds(snapshot: StoreSnapshot, topic: str, queue_id: int) -> tuple[int, int] | None:
    """Return where a queue begins and ends; None where that is not known, or the topic is gone."""
    try:
        batch = snapshot.batch_consume_queue(topic, queue_id)
        if batch is not None:
            units = batch.read_units()
            begin = min_queue_offset(units, max(snapshot.min_phy_offset, 0))
            return max(begin, 0), max_queue_offset(units)
        if (topic, queue_id) in snapshot.queue_paths:
            held = snapshot.queue_range(topic, queue_id)
            return held.min_offset, held.max_offset
    except _DAMAGED:
        return None
    with suppress(StoreError):
        return (0, 0) if topic in (snapshot.topic_configs or {}) else None
    return None
