"""Columns of messages as Arrow batches without Spark: planned and read as Spark would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from rmqsource.scan.message_reader import read_split
from rmqsource.scan.planner import plan_store
from rmqsource.scan.predicate import from_options
from rmqsource.scan.prepared_read import plan_read
from rmqsource.scan.read_request import ReadRequest
from rmqsource.scan.store_versions import on_present_files
from rmqsource.tables import CORRUPT_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqsource.options.source_options import SourceOptions
    from store_core.arrow_types import Columns
    from store_core.snapshot.store_snapshot import StoreSnapshot

_PERMISSIVE = "PERMISSIVE"
_DROPPING = "DROPMALFORMED"


def no_progress(done: int, total: int) -> None:
    """Tell nobody how many splits are read."""


def read_columns(
    options: SourceOptions,
    columns: tuple[str, ...],
    progress: Callable[[int, int], None] = no_progress,
) -> Iterator[Columns]:
    """Yield batches of some columns of all stores that the options name.

    With ``mode=PERMISSIVE`` they have ``_corrupt_record`` too, and a row for each gap.
    """
    predicate = from_options(options)
    plans = plan_read(options, predicate)
    damage = (CORRUPT_RECORD.name,) if options.mode == _PERMISSIVE else ()
    request = ReadRequest.of(options, predicate, columns + damage)
    splits = [split for plan in plans for split in plan.splits]
    for done, split in enumerate(splits):
        progress(done, len(splits))
        yield from read_split(split, request)
    progress(len(splits), len(splits))


def columns_of_snapshot(
    snapshot: StoreSnapshot, options: SourceOptions, columns: tuple[str, ...], **selection: Any
) -> Iterator[Columns]:
    """Yield batches of some columns of one opened store."""
    mode = _DROPPING if options.mode == _PERMISSIVE else options.mode
    kept = replace(options, topics=None, topic_pattern=None, queue_ids=None)
    narrowed = replace(kept, **{"table": "messages", "mode": mode, **selection})
    predicate = from_options(narrowed)
    request = ReadRequest.of(narrowed, predicate, columns)
    plan = on_present_files(snapshot, lambda s: plan_store(s, predicate, narrowed))
    for split in plan.splits:
        yield from read_split(split, request)
