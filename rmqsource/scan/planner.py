# SPDX-License-Identifier: Apache-2.0
"""Plan the splits of a store for a predicate: the cheapest access path that is provably complete.

No Spark here, and no side effects but reading the store.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.errors import DamagedStoreError, DataLossError, SourceOptionError
from rmqsource.options.source_options import sql_option
from rmqsource.scan.compacted_path import compacted_notes, plan_compacted
from rmqsource.scan.predicate import ScanPredicate
from rmqsource.scan.queue_path import (
    RecordPlaces,
    UnprovedError,
    describe_lost_queues,
    read_queue_units,
)
from rmqsource.scan.splits import (
    COMMIT_LOG,
    COMPACTION,
    CONSUME_QUEUE_PATH,
    INDEX,
    MESSAGE_ID,
    NOTHING,
    CompactedSlice,
    SplitLimits,
    StorePlan,
    clip_ranges,
    fetched_bytes,
    group_parts,
    outside,
    place_records,
    sized_slices,
    slices_of,
    total_bytes,
)
from rmqsource.scan.store_versions import missing_log
from store_core.codec.message_id import parse_message_id
from store_core.errors import StoreFormatError
from store_core.log.commit_log import narrow_by_time
from store_core.log.log_scan import JOIN_BYTES, BatchSizer, Gap, scan_slice
from store_core.read.key_match import NotIndexedError, distinct, key_candidates, segment_range

if TYPE_CHECKING:
    from collections.abc import Sized

    import numpy.typing as npt

    from rmqsource.options.source_options import SourceOptions
    from rmqsource.scan.splits import Range, SegmentPositions, Split
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.log_scan import LogSlice
    from store_core.snapshot.store_snapshot import StoreSnapshot

_SCANNED_AT_ONCE = 1 << 20
"""A stream's batch of at most this many bytes is scanned, as reading queues would take longer."""
_MOST_NAMED = 10
_SCATTER_COST = 2
"""A byte read through a unit or an index entry costs about as much as two in a scan."""
_FETCHED_AHEAD = 256


class _AccessPath(NamedTuple):
    """One way to the messages: single records, ranges to scan, and the reason for choosing it."""

    access_path: str
    reason: str
    records: RecordPlaces | None
    ranges: tuple[Range, ...]

    def cost(self, snapshot: StoreSnapshot) -> int:
        """Return roughly how many bytes a scan could read in the same time."""
        scanned = total_bytes(self.ranges)
        if self.records is None:
            return scanned
        offsets, sizes = self.records.offsets, self.records.sizes
        if snapshot.directory.is_local:
            return _SCATTER_COST * int(sizes.sum()) + scanned
        fetched = fetched_bytes(offsets, sizes, snapshot.log.segments.file_size)
        requests = int(np.count_nonzero(np.diff(offsets) > JOIN_BYTES)) + min(len(offsets), 1)
        return int(fetched.sum()) + requests * JOIN_BYTES + scanned


def plan_store(
    snapshot: StoreSnapshot,
    predicate: ScanPredicate,
    options: SourceOptions,
    within: Range | None = None,
) -> StorePlan:
    """Plan one store.

    Raises
    ------
    DataLossError
        Selected queue offsets are gone and ``failOnDataLoss`` is true.
    DamagedStoreError
        The log has lost its end, the lost messages may match, and ``mode`` is ``FAILFAST``.
    StoreFormatError
        A segment has a wrong size and ``mode`` is ``FAILFAST``; or the file is too long and
        nothing proves the size of segments.
    SourceOptionError
        ``access`` forces a path that these options or this store do not allow.
    """
    if options.access == COMPACTION:
        return plan_compacted(snapshot, predicate, options)
    _check_segment_sizes(snapshot, options)
    missing = missing_offsets(snapshot, predicate) if within is None else ()
    if missing and options.fail_on_data_loss:
        raise DataLossError(snapshot.directory.uri, describe_missing(missing))
    everything = within or (max(snapshot.min_phy_offset, 0), snapshot.end_offset)
    bounds = _bounds(snapshot, predicate, options)
    bounds = max(bounds[0], everything[0]), min(bounds[1], everything[1])
    if _shows_gaps(predicate, options):
        reason = "mode PERMISSIVE shows every gap of the log, regardless of the selection"
        way = _AccessPath(COMMIT_LOG, reason, None, (everything,))
    elif predicate.is_empty or bounds[0] >= bounds[1]:
        reason = "no message can match" if predicate.is_empty else "nothing in the log can match"
        way = _AccessPath(NOTHING, reason, None, ())
    elif within is not None and bounds[1] - bounds[0] <= _SCANNED_AT_ONCE:
        way = _AccessPath(
            COMMIT_LOG, "such a small part of the log is scanned directly", None, (bounds,)
        )
    else:
        way = _choose(snapshot, predicate, options, bounds)
    exact = None if within is None else within[0]
    if within is None:
        way = way._replace(reason="; ".join([way.reason, *compacted_notes(snapshot, predicate)]))
    if bounds[1] >= snapshot.end_offset:
        _check_log_end(snapshot, predicate, options)
    splits, bytes_to_read = _splits(snapshot, way, options, exact)
    held = snapshot.end_offset - max(snapshot.min_phy_offset, 0)
    scanned = total_bytes(way.ranges) if way.records is not None else 0
    return StorePlan(
        store=snapshot.directory.uri,
        access_path=way.access_path,
        reason=_with_filter(way.reason, options),
        splits=tuple(splits),
        bytes_to_read=bytes_to_read,
        bytes_skipped=max(held - bytes_to_read, 0),
        log_bytes_scanned=scanned,
        missing_offsets=missing,
        end_offset=snapshot.end_offset,
        missing_log=missing_log(snapshot, options),
    )


def _shows_gaps(predicate: ScanPredicate, options: SourceOptions) -> bool:
    """Return whether rows of damage come from the whole log, not only from parts that may match."""
    return options.mode == "PERMISSIVE" and options.access == "auto" and not predicate.drops_gaps


def _check_log_end(
    snapshot: StoreSnapshot, predicate: ScanPredicate, options: SourceOptions
) -> None:
    """Raise or report that the log has lost its end, if the lost messages may match."""
    lost, store = snapshot.evident_lost_end, snapshot.directory.uri
    if predicate.is_empty or lost is None:
        return
    before_ms = predicate.store_time_ms.stop
    if before_ms is not None and before_ms + options.store_time_slack_ms <= lost.last_timestamp:
        return
    ids = predicate.message_ids
    if ids is not None and all(parse_message_id(text)[1] < lost.end_offset for text in ids):
        return
    if options.mode == "FAILFAST":
        segment = snapshot.log.segments.segments[-1]
        position = lost.end_offset - segment.from_offset
        raise DamagedStoreError(store, segment.path, max(position, 0), str(lost))
    options.on_damage(f"store {store}: {lost}")


def _check_segment_sizes(snapshot: StoreSnapshot, options: SourceOptions) -> None:
    segments = snapshot.log.segments
    nominal = segments.file_size
    starts = [segment.from_offset for segment in segments]
    is_proved = any(b - a == nominal for a, b in zip(starts, starts[1:]))
    for segment in segments:
        is_readable = segment.size < nominal or is_proved
        if segment.size == nominal or (is_readable and options.mode != "FAILFAST"):
            continue
        advice = "give the size of segments with option mappedFileSizeCommitLog"
        if segment.size < nominal:
            advice = (
                "If it was copied only in part, copy it again, or read what is there with "
                f"mode PERMISSIVE; if segments have another size, {advice}"
            )
        elif is_proved:
            surplus = segment.size - nominal
            advice = (
                f"The names of the files prove that size, so {surplus} bytes at its end are "
                "not part of the log: cut them off in a copy, or skip them with mode PERMISSIVE"
            )
        text = f"the file has {segment.size} bytes, but segments of this store have {nominal}. "
        raise StoreFormatError(f"{text}{advice[0].upper()}{advice[1:]}", segment.path)


def missing_offsets(
    snapshot: StoreSnapshot, predicate: ScanPredicate
) -> tuple[tuple[str, int, int, int], ...]:
    """Return the selected queue offsets that are gone, as (topic, queue id, start, stop)."""
    if predicate.starting_offsets is None:
        return ()
    snapshot.dispatched_offset(predicate.starting_offsets.offsets)  # before any queue is read
    gone = []
    for (topic, queue_id), start in sorted(predicate.starting_offsets.offsets.items()):
        held = snapshot.queue_range(topic, queue_id)
        stop = predicate.ending_offsets
        end = stop.offset_of(topic, queue_id) if stop is not None else None
        wanted = held.max_offset if end is None else end
        if start < min(held.min_offset, wanted):
            gone.append((topic, queue_id, start, min(held.min_offset, wanted)))
        elif start > held.max_offset:
            held_end = max(held.max_offset, _undispatched_end(snapshot, topic, queue_id))
            if start > held_end:
                gone.append((topic, queue_id, held_end, start))
    return tuple(gone)


def _undispatched_end(snapshot: StoreSnapshot, topic: str, queue_id: int) -> int:
    """Return the end of a queue in the undispatched part of the log; 0 if it has no message there.

    Scans that part for messages of exactly this queue. For a queue that topics.json names and
    whose directory is lost, that part is the whole log.
    """
    from rmqsource.scan.row_filter import frame_mask  # noqa: PLC0415 (a rare case needs Arrow's kernels)

    begin, end = snapshot.dispatched_offset(), snapshot.end_offset
    named = topic in (snapshot.topic_configs or {})
    if named and (topic, queue_id) not in snapshot.queue_paths:
        begin = max(snapshot.min_phy_offset, 0)
    of_queue = ScanPredicate(topics=frozenset([topic]), queue_ids=frozenset([queue_id]))
    found = 0
    for part in slices_of(snapshot.log.segments, [(begin, end)], end, max(end - begin, 1)):
        with snapshot.directory.open(part.path) as source:
            for frames in scan_slice(source, part, BatchSizer(1 << 16, 16 << 20)):
                if isinstance(frames, Gap):
                    continue
                keep = frame_mask(frames, of_queue, undispatched=False)
                found = max(found, int(frames.column("queue_offset")[keep].max(initial=-1)) + 1)
    return found


def describe_missing(missing: tuple[tuple[str, int, int, int], ...]) -> str:
    """Describe the result of `missing_offsets` in words."""
    topic, queue_id, start, stop = missing[0]
    more = f", and of {len(missing) - 1} more queues" if len(missing) > 1 else ""
    return (
        f"queue offsets {start} to {stop - 1} of topic {topic!r} queue {queue_id}{more}, "
        "requested by option 'startingOffsets', are not in the store"
    )


def _bounds(snapshot: StoreSnapshot, predicate: ScanPredicate, options: SourceOptions) -> Range:
    """Return the range of the log outside which no record can match."""
    times = predicate.store_time_ms
    start, stop = narrow_by_time(
        snapshot.log, snapshot.end_offset, times.start, times.stop, options.store_time_slack_ms
    )
    offsets = predicate.commit_log_offset_range
    if offsets.start is not None:
        start = max(start, offsets.start)
    if offsets.stop is not None:
        stop = min(stop, offsets.stop)
    return start, stop


def _choose(
    snapshot: StoreSnapshot, predicate: ScanPredicate, options: SourceOptions, bounds: Range
) -> _AccessPath:
    if options.access != "auto":
        return _forced(snapshot, predicate, options, bounds)
    if predicate.message_ids is not None:
        return _by_message_id(snapshot, predicate, bounds)
    scan = _AccessPath(COMMIT_LOG, "no key and no topic narrows the read", None, (bounds,))
    if indexed_keys(predicate) is not None:
        try:
            way = _by_index(snapshot, predicate, bounds)
        except UnprovedError as err:
            scan = scan._replace(reason=f"not through the index: {err}")
        else:
            if way.cost(snapshot) < scan.cost(snapshot):
                return way
            scan = scan._replace(reason="the index covers too little of the log")
    if predicate.topics is not None:
        try:
            way = _by_queues(snapshot, predicate, bounds)
        except UnprovedError as err:
            return scan._replace(reason=f"not through the queues: {err}")
        if way.cost(snapshot) < scan.cost(snapshot):
            return way
        return scan._replace(reason="the topics make up too much of the log")
    return scan


def _forced(
    snapshot: StoreSnapshot, predicate: ScanPredicate, options: SourceOptions, bounds: Range
) -> _AccessPath:
    access = options.access
    reason = f"option access={access}"
    if access == COMMIT_LOG:
        return _AccessPath(COMMIT_LOG, reason, None, (bounds,))
    try:
        if access == INDEX:
            found = read_index(snapshot, predicate, bounds)
        else:
            _refuse_lost_queues(snapshot, predicate, options)
            found = read_queue_units(snapshot, predicate, bounds, forced=True)
    except UnprovedError as err:
        raise SourceOptionError("access", f"{access} is not possible: {err}; use auto") from err
    return _AccessPath(access, reason, found, found.scanned)


def _refuse_lost_queues(
    snapshot: StoreSnapshot, predicate: ScanPredicate, options: SourceOptions
) -> None:
    """Raise or report if queues that ``access`` forces lack messages that the log has."""
    lost = describe_lost_queues(snapshot, predicate)
    if lost and options.mode == "FAILFAST":
        raise UnprovedError(f"{lost[0]}: it lost units of messages that are in the log")
    for text in lost[:_MOST_NAMED]:
        options.on_damage(
            f"store {snapshot.directory.uri}: {text}: some of its messages may be missing"
        )


def _by_index(snapshot: StoreSnapshot, predicate: ScanPredicate, bounds: Range) -> _AccessPath:
    found = read_index(snapshot, predicate, bounds)
    keys = indexed_keys(predicate) or frozenset()
    reason = f"the index names {_records(found.offsets)} for {len(keys)} key{'s'[: len(keys) != 1]}"
    return _AccessPath(INDEX, _with_scanned(reason, found), found, found.scanned)


def _by_queues(snapshot: StoreSnapshot, predicate: ScanPredicate, bounds: Range) -> _AccessPath:
    found = read_queue_units(snapshot, predicate, bounds, forced=False)
    reason = f"the consume queues name {_records(found.offsets)} of the topics"
    return _AccessPath(CONSUME_QUEUE_PATH, _with_scanned(reason, found), found, found.scanned)


def _records(offsets: Sized) -> str:
    return f"{len(offsets)} record{'s'[: len(offsets) != 1]}"


def _with_scanned(reason: str, found: RecordPlaces) -> str:
    uncovered = total_bytes(found.scanned)
    if uncovered:
        reason = f"{reason}; {uncovered} bytes that they do not cover are scanned"
    return f"{reason}; {found.trusted}" if found.trusted else reason


def _with_filter(reason: str, options: SourceOptions) -> str:
    sql = sql_option(options)
    if sql is None:
        return reason
    ignored = f"; {sql.ignored}" if sql.ignored else ""
    return f"{reason}; each message is read for option sqlFilter{ignored}"


def _by_message_id(snapshot: StoreSnapshot, predicate: ScanPredicate, bounds: Range) -> _AccessPath:
    places = {parse_message_id(text)[1] for text in predicate.message_ids or ()}
    inside = sorted(offset for offset in places if bounds[0] <= offset < bounds[1])
    named = np.array(inside, np.int64)
    sizes = record_sizes(snapshot, named)
    records = RecordPlaces(named[sizes > 0], sizes[sizes > 0], ())
    return _AccessPath(MESSAGE_ID, f"message ids name {_records(records.offsets)}", records, ())


def _splits(
    snapshot: StoreSnapshot, way: _AccessPath, options: SourceOptions, exact: int | None
) -> tuple[list[Split], int]:
    segments, end = snapshot.log.segments, snapshot.end_offset
    ranges = clip_ranges(way.ranges, 0, end)
    store = snapshot.directory.uri
    scanned = total_bytes(ranges)
    offsets, sizes = np.empty(0, np.int64), np.empty(0, np.int64)
    if way.records is not None:
        keep = outside(way.records.offsets, ranges)
        offsets, sizes = way.records.offsets[keep], way.records.sizes[keep]
    fetched = None
    if not snapshot.directory.is_local:
        fetched = fetched_bytes(offsets, sizes, segments.file_size)
    total = scanned + int((sizes if fetched is None else fetched).sum())
    limits = SplitLimits(
        options.max_partition_bytes,
        options.min_partitions or 1,
        options.max_partitions,
        os.cpu_count() or 1,
    )
    target = limits.target_bytes(total)
    parts: list[tuple[LogSlice | SegmentPositions, int]] = [
        *sized_slices(slices_of(segments, ranges, end, target, exact)),
        *place_records(segments, offsets, sizes, end, target, fetched),
    ]
    splits = group_parts(store, parts, target, options.max_partitions)
    if not snapshot.directory.is_local:
        splits = [_with_versions(split, snapshot.directory) for split in splits]
    return splits, total


def _with_versions(split: Split, directory: StoreDirectory) -> Split:
    paths = {part.path for part in split.parts if not isinstance(part, CompactedSlice)}
    return replace(split, versions=directory.versions(paths))


# Parts of the log the index does not cover (the unindexed tail, gaps between its files, files that
# are lost or damaged) are returned as ranges to scan. Index times are never used: they are cut to
# whole seconds, and in a rolled file relative to the previous file.
def indexed_keys(predicate: ScanPredicate) -> frozenset[str] | None:
    """Return keys of which every matching message has at least one; None if not selected by key.

    The index holds words of KEYS and unique keys alike, so the smallest set is looked up.
    """
    sets = [predicate.key_equals, predicate.unique_keys, predicate.keys]
    given = [keys for keys in sets if keys is not None]
    return min(given, key=len) if given else None


def read_index(snapshot: StoreSnapshot, predicate: ScanPredicate, bounds: Range) -> RecordPlaces:
    """Return candidates for the predicate's keys and topics, inside ``bounds`` of the log.

    Raises
    ------
    UnprovedError
        The predicate does not name keys and topics, or the index cannot be used.
    """
    keys = indexed_keys(predicate)
    if keys is None or predicate.topics is None:
        raise UnprovedError("the index finds a key of a topic, and both must be given")
    offsets: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    ranges: list[Range] = []
    for topic in sorted(predicate.topics):
        try:
            found = key_candidates(snapshot, topic, keys, snapshot.store_timestamp_at)
        except NotIndexedError as err:
            raise UnprovedError(str(err)) from err
        offsets.append(found.offsets)
        ranges += found.ranges
    places = distinct(np.concatenate(offsets))
    places = places[(places >= bounds[0]) & (places < bounds[1])]
    sizes = record_sizes(snapshot, places)
    valid = sizes > 0
    ranges += [segment_range(snapshot, offset) for offset in places[~valid].tolist()]
    return RecordPlaces(places[valid], sizes[valid], tuple(clip_ranges(ranges, *bounds)))


def record_sizes(snapshot: StoreSnapshot, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sizes of the records at ascending offsets; 0 where no whole valid one starts."""
    sizes = np.zeros(len(offsets), np.int64)
    size = max(snapshot.log.segments.file_size, 1)
    snapshot.log.fetch_ahead(offsets[:_FETCHED_AHEAD].tolist())
    cuts = np.flatnonzero(np.diff(offsets // size)) + 1
    for rows in np.split(np.arange(len(offsets)), cuts):
        segment = snapshot.log.segments.find(int(offsets[rows[0]])) if len(rows) else None
        if segment is not None:
            frames = snapshot.log.frames_at(segment, offsets[rows], snapshot.end_offset)
            sizes[rows] = np.where(frames.ok, frames.column("total_size"), 0)
    return sizes
