# SPDX-License-Identifier: Apache-2.0
"""Table ``topics``: one row per topic, over its queues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rmqsource.metadata.columns import NO_TIME, table_part
from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_facts import compacted_facts, queue_facts, store_times
from rmqsource.metadata.queue_units import unit_chunks
from rmqsource.metadata.selection import Selection, selected_queues
from store_core.topics import topic_kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.config.config_files import TopicConfig
    from store_core.snapshot.store_snapshot import StoreSnapshot


@dataclass
class _Topic:
    queues: int = 0
    messages: int = 0
    record_bytes: int = 0
    is_complete: bool = True
    records: list[int] = field(default_factory=list)
    """Log offsets of the queues' first and last records."""


def rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[Table]:
    """Yield the selected topics; topics of ``topics.json`` without queues have no messages.

    ``bytes`` sums the sizes in all units, which requires reading them; it is null if a damaged
    queue was skipped. Light queues share the records of other topics. The store times are the
    oldest of the queues' first messages and the newest of their last ones. For kinds see
    `topic_kind`.
    """
    configs: dict[str, TopicConfig] = {}
    with skip_damaged("config/topics.json", options):
        configs = snapshot.topic_configs or {}
    topics = _topics(snapshot, options, configs)
    compacted: dict[str, int] = {}
    for (name, _), log in compacted_facts(snapshot, options).items():
        compacted[name] = compacted.get(name, 0) + log.messages
        topics.setdefault(name, _Topic())
    names = sorted(topics)
    found = [topics[name] for name in names]
    records = np.array([at for topic in found for at in topic.records], np.int64)
    times = store_times(snapshot, options, records)
    bounds = _bounds(found, times)
    yield table_part(
        "topics",
        snapshot.directory.uri,
        len(names),
        topic=names,
        queues=[topic.queues for topic in found],
        messages=[topic.messages for topic in found],
        bytes=[topic.record_bytes if topic.is_complete else None for topic in found],
        min_store_timestamp=[low for low, _ in bounds],
        max_store_timestamp=[high for _, high in bounds],
        kind=[topic_kind(name, configs.get(name)) for name in names],
        compacted_messages=[compacted.get(name) for name in names],
    )


def _topics(
    snapshot: StoreSnapshot, options: SourceOptions, configs: dict[str, TopicConfig]
) -> dict[str, _Topic]:
    selection = Selection(options)
    topics = {name: _Topic() for name in configs if selection.has_topic(name)}
    for key in selected_queues(snapshot, options):
        topic = topics.setdefault(key.topic, _Topic())
        topic.queues += 1
        is_complete = False
        with skip_damaged(str(key), options):
            facts = queue_facts(snapshot, key)
            chunks = unit_chunks(snapshot, key)
            size = sum(int(units["message_size"].sum(dtype=np.int64)) for _, units in chunks)
            topic.messages += facts.max_offset - facts.min_offset
            topic.record_bytes += size
            topic.records += [facts.first_record, facts.last_record]
            is_complete = True
        topic.is_complete &= is_complete
    return topics


def _bounds(
    topics: list[_Topic], times: npt.NDArray[np.int64]
) -> list[tuple[int | None, int | None]]:
    """Return the oldest and the newest time of each topic."""
    bounds: list[tuple[int | None, int | None]] = []
    at = 0
    for topic in topics:
        part = times[at : at + len(topic.records)]
        at += len(topic.records)
        known = part[part != NO_TIME]
        has_time = len(known) > 0
        bounds.append((int(known.min()), int(known.max())) if has_time else (None, None))
    return bounds
