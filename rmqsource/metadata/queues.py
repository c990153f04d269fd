# SPDX-License-Identifier: Apache-2.0
"""Table ``queues``: one row per topic and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.columns import nullable, table_part
from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_facts import (
    NO_RECORD,
    QueueFacts,
    compacted_facts,
    queue_facts,
    store_times,
)
from rmqsource.metadata.selection import SelectedQueue, selected_queues
from store_core.config.config_files import warn_of_static_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.snapshot.store_snapshot import StoreSnapshot


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the selected queues that have a directory; only the ends of each queue are read.

    The store times are those of the first and last message, null if their records are lost.
    ``messages`` counts the messages in the queue; in a batch queue, those in its records. Compacted
    logs have columns of their own: ``examineTopicStats`` of RocketMQ 5.3.3 also reports the offsets
    of the consume queue, although consumers get the compacted log.
    """
    warn_of_static_topics(snapshot.directory)
    compacted = compacted_facts(snapshot, options)
    keys: list[SelectedQueue] = []
    facts: list[QueueFacts] = []
    for key in selected_queues(snapshot, options):
        with skip_damaged(str(key), options):
            facts.append(queue_facts(snapshot, key))
            keys.append(key)
    low, high, first, last = np.array(facts, np.int64).reshape(-1, len(QueueFacts._fields)).T
    times = store_times(snapshot, options, np.concatenate([first, last]))
    logs = [compacted.get((key.topic, key.queue_id)) for key in keys]
    yield table_part(
        "queues",
        snapshot.directory.uri,
        len(keys),
        topic=[key.topic for key in keys],
        queue_id=[key.queue_id for key in keys],
        min_offset=low,
        max_offset=high,
        messages=high - low,
        min_commit_log_offset=nullable(first, first == NO_RECORD),
        max_commit_log_offset=nullable(last, last == NO_RECORD),
        min_store_timestamp=times[: len(keys)],
        max_store_timestamp=times[len(keys) :],
        compacted_messages=[log and log.messages for log in logs],
        compacted_min_offset=[log and log.min_offset for log in logs],
        compacted_max_offset=[log and log.max_offset for log in logs],
    )
