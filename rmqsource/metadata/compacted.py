"""What tables ``topics`` and ``queues`` say of compacted logs, beside what the queues hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.selection import Selection
from store_core.errors import CorruptRecordError
from store_core.queue.compaction_log import CompactionLog, compacted_queues
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from store_core.store_snapshot import StoreSnapshot


class CompactedFacts(NamedTuple):
    """Queue offsets ``[min_offset, max_offset)`` of a compacted log, and how many are there."""

    min_offset: int
    max_offset: int
    messages: int


def compacted_facts(
    snapshot: StoreSnapshot, options: SourceOptions
) -> dict[tuple[str, int], CompactedFacts]:
    """Return the facts of the selected compacted logs by (topic, queue id), as units tell them."""
    if not snapshot.kind.compacted_topics:
        return {}
    selection, is_live = Selection(options), snapshot.state is StoreState.LIVE
    found = {}
    for topic, queue_id in compacted_queues(snapshot.directory):
        if not selection.has_queue(topic, queue_id):
            continue
        with skip_damaged(f"compacted log {topic}/{queue_id}", options):
            found[topic, queue_id] = _facts(snapshot, topic, queue_id, is_live=is_live)
    return found


def _facts(snapshot: StoreSnapshot, topic: str, queue_id: int, *, is_live: bool) -> CompactedFacts:
    with CompactionLog(snapshot.directory, topic, queue_id, is_live=is_live, proved=False) as log:
        for gap in log.file_gaps:
            raise CorruptRecordError(gap.reason, gap.path, gap.position)
        messages = int(log.units["batch_size"].sum(dtype="i8"))
        return CompactedFacts(max(log.min_offset, 0), log.max_offset, messages)
