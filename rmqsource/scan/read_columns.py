# SPDX-License-Identifier: Apache-2.0
"""Read columns of messages as Arrow batches without Spark, planned as for Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.safe_text import printable
from rmqsource.scan.planner import plan_store
from rmqsource.scan.predicate import from_options
from rmqsource.scan.splits import merge_splits
from rmqsource.scan.store_versions import on_present_files, open_snapshots
from rmqsource.tables import CORRUPT_RECORD
from store_core.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.predicate import ScanPredicate
    from rmqsource.scan.splits import Split, StorePlan
    from store_core.arrow_types import Columns
    from store_core.snapshot.store_snapshot import StoreSnapshot

_PERMISSIVE = "PERMISSIVE"
_DROPPING = "DROPMALFORMED"


def no_progress(done: int, total: int) -> None:
    """Ignore progress: the default of `read_columns`."""


def read_columns(
    options: SourceOptions,
    columns: tuple[str, ...],
    progress: Callable[[int, int], None] = no_progress,
) -> Iterator[Columns]:
    """Yield batches of some columns of all stores that the options name.

    With ``mode=PERMISSIVE`` the batches also have ``_corrupt_record`` and a row for each gap.
    """
    predicate = from_options(options)
    plans = plan_read(options, predicate)
    damage = (CORRUPT_RECORD.name,) if options.mode == _PERMISSIVE else ()
    read = _reading(options, predicate, columns + damage)
    splits = [split for plan in plans for split in plan.splits]
    for done, split in enumerate(splits):
        progress(done, len(splits))
        yield from read(split)
    progress(len(splits), len(splits))


def columns_of_snapshot(
    snapshot: StoreSnapshot, options: SourceOptions, columns: tuple[str, ...], **selection: Any
) -> Iterator[Columns]:
    """Yield batches of some columns of one opened store."""
    mode = _DROPPING if options.mode == _PERMISSIVE else options.mode
    kept = replace(options, topics=None, topic_pattern=None, queue_ids=None)
    narrowed = replace(kept, **{"table": "messages", "mode": mode, **selection})
    predicate = from_options(narrowed)
    read = _reading(narrowed, predicate, columns)
    plan = on_present_files(snapshot, lambda s: plan_store(s, predicate, narrowed))
    for split in plan.splits:
        yield from read(split)


def _reading(
    options: SourceOptions, predicate: ScanPredicate, columns: tuple[str, ...]
) -> Callable[[Split], Iterator[Columns]]:
    """Return a function that reads a split."""
    # Spark plans in a process of its own, which reads nothing.
    from rmqsource.scan.message_batches import ReadRequest  # noqa: PLC0415
    from rmqsource.scan.message_reader import read_split  # noqa: PLC0415

    request = ReadRequest.from_options(options, predicate, columns)
    return lambda split: read_split(split, request)


def plan_read(options: SourceOptions, predicate: ScanPredicate) -> list[StorePlan]:
    """Return the plan of each store."""
    plans = []
    for snapshot in open_snapshots(options):
        with snapshot:
            plans.append(on_present_files(snapshot, lambda s: plan_store(s, predicate, options)))
    return within_limit(plans, options.max_partitions)


def within_limit(plans: list[StorePlan], max_splits: int) -> list[StorePlan]:
    """Share ``maxPartitions`` among the stores in proportion to their splits, at least one each."""
    total = sum(len(plan.splits) for plan in plans)
    if total <= max_splits:
        return plans
    shares = [max(max_splits * len(plan.splits) // total, 1) for plan in plans]
    return [
        replace(plan, splits=merge_splits(plan.splits, share)) for plan, share in zip(plans, shares)
    ]


def plan_columns(plans: Sequence[StorePlan]) -> Columns:
    """Return plans as the columns of table ``plan``."""
    return {
        "store": pa.array([p.store for p in plans], pa.string()),
        "access_path": pa.array([p.access_path for p in plans], pa.string()),
        "reason": pa.array([p.reason for p in plans], pa.string()),
        "splits": pa.array([len(p.splits) for p in plans], pa.int32()),
        "bytes_to_read": pa.array([p.bytes_to_read for p in plans], pa.int64()),
        "bytes_skipped": pa.array([p.bytes_skipped for p in plans], pa.int64()),
        "log_bytes_scanned": pa.array([p.log_bytes_scanned for p in plans], pa.int64()),
        "missing_offsets": pa.array([_missing(p) for p in plans], pa.string()),
        "end_offset": pa.array([p.end_offset for p in plans], pa.int64()),
    }


def _missing(plan: StorePlan) -> str | None:
    gone: list[dict[str, Any]] = [
        {"topic": topic, "queue_id": queue_id, "start": start, "stop": stop}
        for topic, queue_id, start, stop in plan.missing_offsets
    ]
    if plan.missing_log is not None:
        start, stop = plan.missing_log
        gone.append({"commit_log_start": start, "commit_log_stop": stop})
    return json.dumps(gone, ensure_ascii=False) if gone else None


def plan_text(plans: Sequence[StorePlan]) -> str:
    """Return plans as text for people, free of control characters except its line ends."""
    return "\n\n".join(_store_text(plan) for plan in plans)


def _store_text(plan: StorePlan) -> str:
    held = plan.bytes_to_read + plan.bytes_skipped
    share = f" ({100 * plan.bytes_to_read / held:.1f} % of the log)" if held else ""
    lines = [
        f"store            {plan.store}",
        f"access path      {plan.access_path}",
        f"because          {plan.reason}",
        f"splits           {len(plan.splits)}",
        f"bytes to read    {plan.bytes_to_read:,}{share}",
        f"bytes skipped    {plan.bytes_skipped:,}",
    ]
    if plan.log_bytes_scanned:
        lines.append(f"of them scanned  {plan.log_bytes_scanned:,} (not covered otherwise)")
    missing = _missing(plan)
    lines += [f"gone             {missing}"] if missing else []
    lines.append(f"log ends at      {plan.end_offset:,}")
    return "\n".join(map(printable, lines))
