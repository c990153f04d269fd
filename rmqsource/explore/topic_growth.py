# SPDX-License-Identifier: Apache-2.0
"""Topics that fill the disk: bytes, rates, retention and growth of each, from the queues alone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqsource.metadata import read_metadata
from rmqsource.metadata.damage import skip_damaged
from rmqsource.metadata.queue_units import unit_chunks
from rmqsource.metadata.selection import selected_queues
from rmqsource.scan.store_versions import open_snapshots
from store_core.log.commit_log import narrow_by_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.snapshot.store_snapshot import StoreSnapshot

GROWTH_COLUMNS = (
    *("topic", "queues", "messages", "bytes", "bytes_share", "messages_per_second"),
    *("bytes_per_day", "growth", "retention_seconds", "min_store_timestamp"),
    *("max_store_timestamp", "kind", "store"),
)
"""Columns of `topic_growth`, in order."""

_DAY_MS = 86_400_000


class _Window(NamedTuple):
    """First and last time in the log, and the log offset halfway in time; 0 if unknown."""

    begin_ms: int
    end_ms: int
    middle: int


def topic_growth(options: SourceOptions) -> Iterator[dict[str, Any]]:
    """Yield a row per topic and store, the largest first; only queues are read.

    - ``bytes_share``: share of the bytes of all selected topics of the store, 0 to 1.
    - ``messages_per_second``, ``bytes_per_day``: over the time between the store's first and
      last message; null if that is 0.
    - ``growth``: bytes in the newer half of that time divided by those in the older half, minus 1;
      null if the older half has none.
    - ``retention_seconds``: from the topic's oldest message to the newest of all selected topics.
    """
    for snapshot in open_snapshots(options):
        with snapshot:
            yield from _rows(snapshot, options)


def _rows(snapshot: StoreSnapshot, options: SourceOptions) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in read_metadata("topics", snapshot, options):
        columns = {name: column.to_pylist() for name, column in batch.items()}
        rows += [dict(zip(columns, values)) for values in zip(*columns.values())]
    window = _window(snapshot)
    halves = _halves(snapshot, options, window.middle)
    total = sum(row["bytes"] or 0 for row in rows)
    newest = max((r["max_store_timestamp"] for r in rows if r["max_store_timestamp"]), default=None)
    found = []
    for row in rows:
        span = window.end_ms - window.begin_ms
        older, newer = halves.get(row["topic"], (0, 0))
        held = row["bytes"]
        row["bytes_share"] = None if held is None or not total else held / total
        row["messages_per_second"] = row["messages"] * 1000 / span if span > 0 else None
        row["bytes_per_day"] = held * _DAY_MS / span if span > 0 and held is not None else None
        row["growth"] = newer / older - 1 if older else None
        oldest = row["min_store_timestamp"]
        kept = None if oldest is None or newest is None else newest - oldest
        row["retention_seconds"] = None if kept is None else kept / timedelta(seconds=1)
        found.append({name: row[name] for name in GROWTH_COLUMNS})
    return sorted(found, key=lambda row: (-(row["bytes"] or 0), row["topic"]))


def _window(snapshot: StoreSnapshot) -> _Window:
    begin = snapshot.oldest_store_timestamp()
    end = snapshot.store_timestamp_at(snapshot.last_dispatched()[0])
    if begin is None or end is None or end <= begin:
        return _Window(0, 0, 0)
    middle_ms = begin + (end - begin) // 2
    middle, _ = narrow_by_time(snapshot.log, snapshot.end_offset, middle_ms, None, 0)
    return _Window(begin, end, middle)


def _halves(
    snapshot: StoreSnapshot, options: SourceOptions, middle: int
) -> dict[str, tuple[int, int]]:
    """Return the bytes before and after a log offset, by topic."""
    found: dict[str, tuple[int, int]] = {}
    for key in selected_queues(snapshot, options):
        with skip_damaged(str(key), options):
            for _, units in unit_chunks(snapshot, key):
                sizes = units["message_size"].astype("i8")
                is_new = units["commit_log_offset"] >= middle
                older, newer = found.get(key.topic, (0, 0))
                new = int(sizes[is_new].sum())
                found[key.topic] = (older + int(sizes.sum()) - new, newer + new)
    return found
