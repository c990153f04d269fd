# SPDX-License-Identifier: Apache-2.0
"""Plan the splits of a stream's batch: a range of each log, planned like a batch read."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rmqsource.errors import StreamDataLossError
from rmqsource.options.offsets import SPECIFIC, OffsetBound
from rmqsource.scan.planner import plan_store
from rmqsource.scan.read_columns import within_limit
from rmqsource.scan.store_versions import on_present_files, open_snapshot, store_config
from rmqsource.stream.stream_offset import JOINED, RESUMED, check_selection, selection_of
from store_core.errors import StoreNotFoundError
from store_core.files.store_directory import expand_paths
from store_core.read.log_watch import MarkState, mark_state

if TYPE_CHECKING:
    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.predicate import ScanPredicate
    from rmqsource.scan.splits import Split, StorePlan
    from rmqsource.stream.stream_offset import QueueOffsets, StoreOffset, StreamOffset
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.snapshot.store_snapshot import StoreSnapshot

logger = logging.getLogger(__name__)


class StreamSplit(NamedTuple):
    """What one task of a batch reads, with the queue offsets of the stream's start that apply."""

    split: Split
    queue_offsets: QueueOffsets

    def predicate(self, predicate: ScanPredicate) -> ScanPredicate:
        """Return the stream's predicate with the bounds of this batch."""
        return _with_bounds(predicate, self.queue_offsets)


class _Range(NamedTuple):
    """The part of one store's log that a batch has; ``before`` is where the previous batch ended.

    A ``start`` of None means the first record of the log.
    """

    path: str
    start: int | None
    stop: StoreOffset
    queue_offsets: QueueOffsets
    before: StoreOffset | None = None


def plan_batch(
    options: SourceOptions, predicate: ScanPredicate, start: StreamOffset, end: StreamOffset
) -> list[StreamSplit]:
    """Return the splits of the batch between two offsets, in the order of the logs.

    The same offsets give the same rows at any time.

    Raises
    ------
    StreamDataLossError
        Part of the batch is gone or has changed, and ``failOnDataLoss`` is true.
    SourceOptionError
        The offsets were made with options that select other rows.
    """
    selection = selection_of(options)
    check_selection(start, selection)
    check_selection(end, selection)
    config = store_config(options)
    located = _located(options)
    for path in start.stores.keys() - end.stores.keys():
        reason = (
            f"it was read up to offset {start.stores[path].offset}, but is now gone or no "
            "longer named"
        )
        _lose(options, path, reason, "it is read from its first record when it is back")
    ranges = [
        _range(located.get(path, path), start, stop)
        for path, stop in end.stores.items()
        if not _is_same(start.stores.get(path), stop)
    ]
    plans: list[StorePlan] = []
    bounds: dict[str, QueueOffsets] = {}
    for part in ranges:
        if (part.start or 0) < part.stop.offset:
            found = _plan(options, config, predicate, part)
            plans += found
            bounds.update((plan.store, part.queue_offsets) for plan in found)
        elif part.before is not None and _is_another_end(part.before, part.stop):
            reason = (
                f"it was read up to offset {part.start}, but its log now ends at {part.stop.offset}"
            )
            _lose(options, part.path, reason, f"it continues at offset {part.stop.offset}")
    limited = within_limit(plans, options.max_partitions)
    return [StreamSplit(split, bounds[plan.store]) for plan in limited for split in plan.splits]


def _located(options: SourceOptions) -> dict[str, str]:
    """Return each named store by its text, as offsets do not contain what opens a remote store."""
    located: dict[str, str] = {}
    for given in options.paths:
        with suppress(StoreNotFoundError):  # reported by the code that needs it
            located.update((path, path) for path in expand_paths([given]))
    return located


def _is_same(start: StoreOffset | None, end: StoreOffset) -> bool:
    return start is not None and start.offset == end.offset and end.begin is None


def _is_another_end(before: StoreOffset, stop: StoreOffset) -> bool:
    """Return whether a batch ends in another log, or in one that was cut; an older Spark may ask.

    Newer releases give a batch's start when they ask for its end, so the loss is reported then.
    """
    if stop.offset < before.offset:
        return True
    return before.last is not None and stop.last is not None and before.last != stop.last


def _range(path: str, start: StreamOffset, stop: StoreOffset) -> _Range:
    """Return the range of a store's log that a batch has.

    The first batch, and a batch after a loss, begin where the ``begin`` of their end says. An older
    Spark does not pass the start, so the first end after a restart has a ``begin`` too; it is
    ignored.
    """
    before, begin = start.stores.get(path), stop.begin
    if before is not None and (begin is None or begin.why != RESUMED):
        return _Range(path, before.offset, stop, before.queue_offsets, before)
    if begin is None or (before is None and not start.is_initial and begin.why != JOINED):
        return _Range(path, None, stop, {})  # the store was added later
    return _Range(path, begin.offset, stop, begin.queue_offsets)


def _plan(
    options: SourceOptions,
    config: MessageStoreConfig,
    predicate: ScanPredicate,
    part: _Range,
) -> list[StorePlan]:
    try:
        with open_snapshot(part.path, config, part.stop.offset) as snapshot:
            lost = _lost(snapshot, part)
            if lost is None:
                return _planned(snapshot, options, predicate, part)
    except StoreNotFoundError as err:
        lost = f"{err}; a batch needs offsets {part.start or 0} to {part.stop.offset} of it"
    _lose(options, part.path, lost, "the batch has what is left")
    return _what_is_left(options, config, predicate, part)


def _lose(options: SourceOptions, path: str, reason: str, instead: str) -> None:
    if options.fail_on_data_loss:
        raise StreamDataLossError(path, reason, instead)
    logger.warning("store %s: %s; %s", path, reason, instead)


def _planned(
    snapshot: StoreSnapshot, options: SourceOptions, predicate: ScanPredicate, part: _Range
) -> list[StorePlan]:
    within = (max(part.start or 0, snapshot.min_phy_offset), snapshot.end_offset)
    if within[0] >= within[1]:
        return []
    wanted = _with_bounds(predicate, part.queue_offsets)
    return [on_present_files(snapshot, lambda s: plan_store(s, wanted, options, within))]


def _what_is_left(
    options: SourceOptions, config: MessageStoreConfig, predicate: ScanPredicate, part: _Range
) -> list[StorePlan]:
    try:
        with open_snapshot(part.path, config, None) as now:
            end = min(now.end_offset, part.stop.offset)
        with open_snapshot(part.path, config, end) as snapshot:
            return _planned(snapshot, options, predicate, part)
    except StoreNotFoundError:
        return []


def _lost(snapshot: StoreSnapshot, part: _Range) -> str | None:
    """Describe what has changed in the log since the batch was made; None if nothing."""
    low, start, stop = max(snapshot.min_phy_offset, 0), part.start, part.stop.offset
    if start is not None and start < low:
        return f"bytes {start} to {min(low, stop)} of the log, which a batch needs, are gone"
    if start is not None and snapshot.log.segments.find(start) is None:
        return f"the segment that held offset {start}, where a batch begins, is missing"
    for mark in (part.before.last if part.before else None, part.stop.last):
        state = MarkState.HELD if mark is None else mark_state(snapshot.log, mark)
        if mark is not None and state in {MarkState.REPLACED, MarkState.GONE}:
            return (
                f"a batch needs offsets {start or 0} to {stop}, but the record at "
                f"{mark.offset} is not the same as before ({state.value}): the log was cut "
                "since, or is another one"
            )
    return None


def _with_bounds(predicate: ScanPredicate, queue_offsets: QueueOffsets) -> ScanPredicate:
    if not queue_offsets:
        return predicate
    return replace(predicate, starting_offsets=OffsetBound(SPECIFIC, queue_offsets))
