"""Each consumer group in one row: how far behind, and what it could not consume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqsource.metadata import read_metadata
from rmqsource.scan.store_versions import open_snapshots
from store_core.arrow import pa
from store_core.config.config_files import load_subscription_groups
from store_core.topics import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Table
    from store_core.store_snapshot import StoreSnapshot

_TEXTS = ("group", "store")
GROUP_COLUMNS = (
    *("group", "topics", "queues", "lag", "lag_ms", "expired", "beyond_end", "retry_messages"),
    *("dead_letters", "retry_max_times", "store"),
)
"""``topics`` and ``queues`` are those with an offset, retry topics left out; ``lag`` has them.

``beyond_end``: by how many messages the group's offsets are beyond the ends of their queues.
"""


def group_standing(options: SourceOptions) -> Table:
    """Return a ``pa.Table`` with a row per group and store, the furthest behind first."""
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
