# SPDX-License-Identifier: Apache-2.0
"""Table ``consume_queue``: one row per unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.columns import table_part
from rmqsource.metadata.damage import skip_damaged, until_damage
from rmqsource.metadata.queue_units import unit_chunks
from rmqsource.metadata.selection import selected_queues

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.snapshot.store_snapshot import StoreSnapshot


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the units of the selected queues, light queues (``%LMQ%``) and batch queues included.

    Only units of a queue's proved range are included: not expired, and not past the end of the log.
    The tags code is as stored; an address of an extension unit is not followed. A unit of a batch
    queue is one row, with the queue offset of its first message.
    """
    store = snapshot.directory.uri
    selected = selected_queues(snapshot, options)
    for key in selected:  # before the first row, while the store can still be reopened if files go
        if not key.is_batch:
            with skip_damaged(str(key), options):
                snapshot.queue_range(key.topic, key.queue_id)
    for key in selected:
        for queue_offset, units in until_damage(unit_chunks(snapshot, key), str(key), options):
            yield table_part(
                "consume_queue",
                store,
                len(units),
                topic=key.topic,
                queue_id=np.full(len(units), key.queue_id, np.int32),
                queue_offset=queue_offset,
                commit_log_offset=units["commit_log_offset"],
                message_size=units["message_size"],
                tags_code=units["tags_code"],
            )
