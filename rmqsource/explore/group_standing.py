# SPDX-License-Identifier: Apache-2.0
"""Each consumer group in one row: its lag, and the messages that it failed to consume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqsource.metadata import read_metadata
from rmqsource.scan.store_versions import open_snapshots
from store_core.arrow import pa, pc
from store_core.config.config_files import load_subscription_groups
from store_core.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.snapshot.store_snapshot import StoreSnapshot

_TEXTS = ("group", "store")
GROUP_COLUMNS = (
    *("group", "topics", "queues", "lag", "lag_ms", "expired", "beyond_end", "retry_messages"),
    *("dead_letters", "retry_max_times", "store"),
)
"""``topics`` and ``queues`` count those with an offset except retry topics; ``lag`` includes them.

``beyond_end``: number of messages by which the group's offsets are past the ends of their queues.
"""


def group_standing(options: SourceOptions) -> Table:
    """Return a ``pa.Table`` with a row per group and store, the largest lag first."""
    rows: list[dict[str, Any]] = []
    for snapshot in open_snapshots(options):
        with snapshot:
            rows += _rows(snapshot, options)
    rows.sort(key=lambda row: (-row["lag"], -row["dead_letters"], row["group"]))
    kinds = {name: pa.string() if name in _TEXTS else pa.int64() for name in GROUP_COLUMNS}
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))


def _rows(snapshot: StoreSnapshot, options: SourceOptions) -> Iterator[dict[str, Any]]:
    held = {
        topic: messages
        for batch in read_metadata("topics", snapshot, options)
        for topic, messages in zip(*(batch[name].to_pylist() for name in ("topic", "messages")))
    }
    settings = load_subscription_groups(snapshot.directory) or {}
    offsets: dict[str, list[dict[str, Any]]] = {name: [] for name in settings}
    for batch in read_metadata("consumer_offsets", snapshot, options):
        for row in pa.table(batch).to_pylist():
            offsets.setdefault(row["group"], []).append(row)
    for group, queues in offsets.items():
        own = [row for row in queues if not row["topic"].startswith(RETRY_PREFIX)]
        limit = settings.get(group)
        yield {
            "group": group,
            "topics": len({row["topic"] for row in own}),
            "queues": len(own),
            "lag": sum(max(row["lag"], 0) for row in queues),
            "lag_ms": max((row["lag_ms"] or 0 for row in queues), default=None),
            "expired": sum(row["expired"] for row in queues),
            "beyond_end": sum(max(-row["lag"], 0) for row in queues),
            "retry_messages": held.get(f"{RETRY_PREFIX}{group}", 0),
            "dead_letters": held.get(f"{DLQ_PREFIX}{group}", 0),
            "retry_max_times": None if limit is None else limit.retry_max_times,
            "store": snapshot.directory.uri,
        }


def offsets_outside(rows: Table) -> list[str]:
    """Return a sentence for each offset past the end or before the beginning of its queue."""
    outside = rows.filter(pc.or_(pc.less(rows["lag"], 0), pc.greater(rows["expired"], 0)))
    found = outside.to_pylist()
    found.sort(key=lambda row: (row["lag"], -row["expired"], row["group"], row["topic"]))
    return [_text(row) for row in found]


def _text(row: dict[str, object]) -> str:
    where = f"queue {row['queue_id']} of topic {row['topic']!r}"
    if int(str(row["lag"])) < 0:
        return (
            f"group {row['group']!r} is {-int(str(row['lag'])):,} messages past the end of "
            f"{where}: its offset is {row['consumer_offset']}, the queue ends at "
            f"{row['broker_offset']}; until it is reset, it gets none of the next messages"
        )
    return (
        f"group {row['group']!r} has not consumed {int(str(row['expired'])):,} messages of "
        f"{where} that have been deleted: its offset is {row['consumer_offset']}"
    )
