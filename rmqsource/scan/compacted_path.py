# SPDX-License-Identifier: Apache-2.0
"""The access path ``compaction``: the messages a 5.x broker gives consumers of compacted topics."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.errors import DataLossError, SourceOptionError
from rmqsource.options.option_values import INT64_MAX
from rmqsource.scan.splits import (
    COMPACTION,
    CompactedSlice,
    SplitLimits,
    StorePlan,
    group_parts,
)
from store_core.errors import StoreError
from store_core.queue.batch_consume_queue import max_queue_offset
from store_core.queue.compaction_log import CompactionLog, compacted_queues, is_compacted
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.predicate import ScanPredicate
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Units = npt.NDArray[np.void]

_NAMED_TOPICS = 5


class _Held(NamedTuple):
    """The units of a compacted log, and whether its files are damaged."""

    units: Units
    is_damaged: bool


def plan_compacted(
    snapshot: StoreSnapshot, predicate: ScanPredicate, options: SourceOptions
) -> StorePlan:
    """Plan a read of compacted logs: their present units, cut by the bytes of their records.

    If a broker has the store open, one task reads each queue, as it is when the task begins.

    Raises
    ------
    SourceOptionError
        A topic given by name has no compacted log, or no topic has one; or option ``snapshot`` is
        given.
    DataLossError
        A starting offset is past the end of its queue, and ``failOnDataLoss`` is true.
    """
    if options.snapshot is not None:
        raise SourceOptionError(
            "access",
            "'compaction' is not possible if the end of the commit log is pinned, by option "
            "'snapshot' or by a command such as messages --last: compacted logs have no "
            "older states",
        )
    queues = _selected(snapshot, predicate)
    _check_asked(snapshot, predicate)
    held = {queue: _held(snapshot, *queue) for queue in queues}
    units = {queue: found.units for queue, found in held.items()}
    wanted = {queue: _wanted(predicate, *queue, found) for queue, found in units.items()}
    missing = _missing(predicate, units)
    if missing and options.fail_on_data_loss:
        topic, queue_id, end, start = missing[0]
        reason = f"the compacted log of topic {topic!r} queue {queue_id} ends before {start}: {end}"
        raise DataLossError(snapshot.directory.uri, reason)
    total = sum(map(_bytes_of, wanted.values()))
    limits = SplitLimits(
        options.max_partition_bytes,
        options.min_partitions or 1,
        options.max_partitions,
        os.cpu_count() or 1,
    )
    target = limits.target_bytes(total)
    cut = _whole if snapshot.state is StoreState.LIVE else _slices
    parts = [part for queue, found in wanted.items() for part in cut(*queue, found, target)]
    sliced = {(part.topic, part.queue_id) for part, _ in parts}
    parts += [  # the task reports the damage
        (CompactedSlice(*queue, 0, 0, True, 0), 0)
        for queue, found in held.items()
        if found.is_damaged and queue not in sliced
    ]
    return StorePlan(
        store=snapshot.directory.uri,
        access_path=COMPACTION,
        reason=_reason(snapshot, wanted),
        splits=tuple(group_parts(snapshot.directory.uri, parts, target, options.max_partitions)),
        bytes_to_read=total,
        bytes_skipped=sum(map(_bytes_of, units.values())) - total,
        log_bytes_scanned=0,
        missing_offsets=missing,
        end_offset=snapshot.end_offset,
    )


def compacted_notes(snapshot: StoreSnapshot, predicate: ScanPredicate) -> list[str]:
    """Return notes on compacted topics for the plan of a read of the commit log."""
    queues = _selected(snapshot, predicate)
    if not queues or predicate.is_empty:
        return []
    lost = sum(messages_lost_in_log(snapshot, *queue) for queue in queues)
    topics = sorted({topic for topic, _ in queues})
    told = f"consumers of {_names(topics)} get the compacted logs: access=compaction reads those"
    if lost:
        told += f", which alone still have {lost} message{'s'[: lost != 1]}"
    return [told]


def messages_lost_in_log(snapshot: StoreSnapshot, topic: str, queue_id: int) -> int:
    """Return how many messages the compacted log has and the commit log no longer has.

    These are the messages before the first queue offset of the consume queue; 0 if that is unknown.
    """
    if snapshot.kind.queue_database or (topic, queue_id) not in snapshot.queue_paths:
        return 0
    try:
        first = snapshot.queue_range(topic, queue_id).min_offset
        units = _held(snapshot, topic, queue_id, waits=False).units
    except StoreError:  # reads of the files report what is wrong with them
        return 0
    return int(np.count_nonzero(units["base_queue_offset"] < first))


def _held(snapshot: StoreSnapshot, topic: str, queue_id: int, *, waits: bool = True) -> _Held:
    """Read the units of a compacted log; ``waits`` while a broker may be replacing its files."""
    is_live = waits and snapshot.state is StoreState.LIVE
    with CompactionLog(snapshot.directory, topic, queue_id, is_live=is_live, proved=False) as log:
        return _Held(log.units, bool(log.file_gaps))


def _selected(snapshot: StoreSnapshot, predicate: ScanPredicate) -> list[tuple[str, int]]:
    """Return the (topic, queue id) of compacted logs that the predicate selects."""
    if not snapshot.kind.compacted_topics:
        return []
    pattern = None if predicate.topic_pattern is None else re.compile(predicate.topic_pattern)
    return [
        (topic, queue_id)
        for topic, queue_id in compacted_queues(snapshot.directory)
        if (predicate.topics is None or topic in predicate.topics)
        and (pattern is None or pattern.fullmatch(topic))
        and (predicate.queue_ids is None or queue_id in predicate.queue_ids)
        and predicate.queue_id_range.contains(queue_id)
    ]


def _check_asked(snapshot: StoreSnapshot, predicate: ScanPredicate) -> None:
    """Raise if no topic has a compacted log, or a topic given by name has none."""
    there = snapshot.kind.compacted_topics
    if not there:
        raise SourceOptionError(
            "access",
            f"'compaction' is not possible: no topic of store {snapshot.directory.uri} has a "
            "compacted log",
        )
    for topic in sorted((predicate.topics or frozenset()) - set(there)):
        if not is_compacted((snapshot.topic_configs or {}).get(topic)):
            raise SourceOptionError(
                "access",
                f"'compaction' is not possible: topic {topic!r} has no compacted log, only "
                f"{_names(there)}; use auto",
            )


def _wanted(predicate: ScanPredicate, topic: str, queue_id: int, units: Units) -> Units:
    """Return the units whose queue offsets the predicate selects."""
    base = units["base_queue_offset"]
    keep = np.ones(len(units), bool)
    wanted = predicate.queue_offset_range
    starting, ending = predicate.starting_offsets, predicate.ending_offsets
    # A record may hold a batch of which only later messages are selected.
    last = base + np.maximum(units["batch_size"].astype(np.int64) - 1, 0)
    for start in (wanted.start, starting and starting.offset_of(topic, queue_id)):
        keep &= last >= (0 if start is None else start)
    for stop in (wanted.stop, ending and ending.offset_of(topic, queue_id)):
        keep &= True if stop is None else base < stop
    return units[keep] if not predicate.is_empty else units[:0]


def _missing(
    predicate: ScanPredicate, units: dict[tuple[str, int], Units]
) -> tuple[tuple[str, int, int, int], ...]:
    """Return starting offsets past the end of their queue: (topic, queue id, end, start)."""
    if predicate.starting_offsets is None:
        return ()
    gone = []
    for (topic, queue_id), start in sorted(predicate.starting_offsets.offsets.items()):
        found = units.get((topic, queue_id))
        end = max_queue_offset(found) if found is not None else 0
        if found is not None and start > end:
            gone.append((topic, queue_id, end, start))
    return tuple(gone)


def _whole(
    topic: str, queue_id: int, units: Units, target_bytes: int
) -> list[tuple[CompactedSlice, int]]:
    """Return the one slice of a queue that a broker may compact before it is read.

    The slice has no end: a message that compaction drops has a newer one of its key, which may be
    newer than this plan. Two slices, read at different times, could miss both.
    """
    del target_bytes
    if len(units) == 0:
        return []
    start = int(units["base_queue_offset"][0])
    return [(CompactedSlice(topic, queue_id, start, INT64_MAX, True, -1), _bytes_of(units))]


def _slices(
    topic: str, queue_id: int, units: Units, target_bytes: int
) -> list[tuple[CompactedSlice, int]]:
    if len(units) == 0:
        return []
    sizes = units["message_size"].astype(np.int64)
    cuts = np.flatnonzero(np.diff((np.cumsum(sizes) - sizes) // target_bytes)) + 1
    found: list[tuple[CompactedSlice, int]] = []
    for part in np.split(np.arange(len(units)), cuts):
        some = units[part]
        start, stop = int(some["base_queue_offset"][0]), max_queue_offset(some)
        piece = CompactedSlice(topic, queue_id, start, stop, not found, len(some))
        found.append((piece, int(sizes[part].sum())))
    return found


def _bytes_of(units: Units) -> int:
    return int(units["message_size"].sum(dtype=np.int64))


def _reason(snapshot: StoreSnapshot, wanted: dict[tuple[str, int], Units]) -> str:
    topics = sorted({topic for topic, _ in wanted})
    count = sum(map(len, wanted.values()))
    reason = (
        f"option access=compaction: {count} records of {len(wanted)} compacted logs, as "
        "consumers get them"
    )
    configs = snapshot.topic_configs
    plain = [t for t in topics if configs is not None and not is_compacted(configs.get(t))]
    if plain:
        reason += (
            f"; but topics.json does not give {_names(plain)} cleanup.policy=COMPACTION, so "
            "consumers now get the commit log"
        )
    return reason


def _names(topics: Sequence[str]) -> str:
    rest = len(topics) - _NAMED_TOPICS
    return ", ".join(topics[:_NAMED_TOPICS]) + (f" and {rest} more" if rest > 0 else "")
