"""What a salvage does not take over of compacted logs: messages that only they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.errors import StoreError
from store_core.queue.compaction_directories import compacted_queues
from store_core.queue.compaction_log import CompactionLog
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from store_core.store_snapshot import StoreSnapshot
    from store_core.tools.salvage.moved_offsets import QueueOffsets


def compacted_messages_notes(
    snapshot: StoreSnapshot, queues: Mapping[tuple[str, int], QueueOffsets]
) -> list[str]:
    """Return for a person what of the compacted logs is not in the new store.

    Parameters
    ----------
    snapshot
        The old store.
    queues
        Old queue offsets of what was taken over.
    """
    only: dict[str, int] = {}
    unread = []
    for topic, queue_id in compacted_queues(snapshot.directory):
        is_live = snapshot.state is StoreState.LIVE
        try:
            with CompactionLog(snapshot.directory, topic, queue_id, is_live=is_live) as log:
                offsets = log.units["base_queue_offset"]
        except StoreError as err:
            unread.append(f"the compacted log of {topic}/{queue_id} cannot be read: {err}")
            continue
        taken = np.zeros(len(offsets), bool)
        for run in queues[topic, queue_id].runs if (topic, queue_id) in queues else ():
            taken |= (offsets >= run.old) & (offsets < run.old + run.length)
        only[topic] = only.get(topic, 0) + int(np.count_nonzero(~taken))
    told = ", ".join(f"{topic}: {count}" for topic, count in only.items() if count)
    if told:
        unread.append(
            f"messages that only compacted logs of the old store have are not in the new one "
            f"({told}): read them from the old store with access=compaction"
        )
    return unread
