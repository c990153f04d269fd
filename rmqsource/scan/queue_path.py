# SPDX-License-Identifier: Apache-2.0
"""The consume queue path: records of some topics through their queues' units.

The planner uses it only where the units provably cover all records that a scan would find. Parts
of the log that they do not prove (the undispatched tail, a front whose queue files are gone, bytes
that no queue's unit covers) are returned as ranges to scan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqsource.scan.splits import clip_ranges
from store_core.codec.java_string import string_hash
from store_core.config.config_files import is_deleted_topic, load_consumer_offsets
from store_core.errors import CorruptRecordError, StoreFormatError, StoreReadError
from store_core.layout import LMQ_PREFIX, MAX_EXT_ADDRESS, SCHEDULE_TOPIC
from store_core.queue.readable_queue import proved_batch_units
from store_core.read.key_match import has_batch_queues

if TYPE_CHECKING:
    import numpy.typing as npt

    from rmqsource.scan.predicate import ScanPredicate
    from rmqsource.scan.splits import Range
    from store_core.queue.queue_database import StoredUnits
    from store_core.queue.queue_range import QueueRange
    from store_core.snapshot.store_snapshot import StoreSnapshot

    Int64s = npt.NDArray[np.int64]

MAX_UNITS = 20_000_000
"""Splits carry the places of at most this many records (8 bytes each); for more the log is
scanned."""
_MAX_HASH = 2**31 - 1
_MOST_UNITS = 1 << 20
"""The proof reads at most this many units (20 MB)."""
_MOST_QUEUES = 1 << 10
"""The proof reads the files of at most this many queues."""
_MOST_REMOTE_QUEUES = 64
"""The same bound for a remote store, where each queue takes about twenty requests."""


class UnprovedError(Exception):
    """The queues do not prove that they name every record; the text says why."""


class RecordPlaces(NamedTuple):
    """Records located through units (ascending offsets, and sizes), and ranges to scan.

    ``trusted`` says in words what was not proved; empty if everything was.
    """

    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    scanned: tuple[Range, ...]
    trusted: str = ""


class _Queue(NamedTuple):
    """Selected units of one queue, complete for the log offsets ``[front, tail)``."""

    units: npt.NDArray[np.void]
    front: int
    tail: int

    def between(self, front: int, tail: int) -> npt.NDArray[np.void]:
        """Return the units of records that start in ``[front, tail)``; not a copy if all do."""
        starts = self.units["commit_log_offset"]
        inside = (starts >= front) & (starts < tail)
        return self.units if inside.all() else self.units[inside]


def read_queue_units(
    snapshot: StoreSnapshot, predicate: ScanPredicate, bounds: Range, *, forced: bool
) -> RecordPlaces:
    """Return the records of the predicate's topics, queues, queue offsets and tags.

    Raises
    ------
    UnprovedError
        Something is missing or damaged and ``forced`` is false, or the queues cannot be used.
    """
    dispatched = snapshot.dispatched_offset(_present(snapshot, predicate))  # before any unit
    keys = [
        (topic, queue_id)
        for topic in _topics(snapshot, predicate)
        for queue_id in _queue_ids(snapshot, topic, predicate, forced=forced)
    ]
    queues = [
        _read_queue(snapshot, topic, queue_id, predicate, forced=forced)
        for topic, queue_id in snapshot.prefetched_queues(keys, whole=not forced)
    ]
    front = max([bounds[0], *(queue.front for queue in queues)])
    tail = min([bounds[1], dispatched, *(queue.tail for queue in queues)])
    tail = max(tail, front)
    units = [queue.between(front, tail) for queue in queues]
    sizes = _joined([of_queue["message_size"] for of_queue in units])
    offsets = _joined([of_queue["commit_log_offset"] for of_queue in units])
    offsets, first = np.unique(offsets, return_index=True)
    scanned = [(bounds[0], min(front, bounds[1])), (tail, bounds[1])]
    trusted = ""
    if not forced:
        ranges, trusted = _uncovered(snapshot, front, min(tail, bounds[1]))
        scanned += ranges
    kept = clip_ranges(scanned, *bounds)
    return RecordPlaces(offsets, sizes[first], tuple(kept), trusted)


def describe_lost_queues(snapshot: StoreSnapshot, predicate: ScanPredicate) -> list[str]:
    """Describe the predicate's queues that evidently lost selected units, one text for each.

    While the log still has its first record, no unit has expired. A queue that begins above 0 has
    therefore lost its first units, and one that is missing although a group has consumed from it
    has lost all.
    """
    if snapshot.min_phy_offset > 0 or snapshot.kind.queue_database:
        return []
    lost = []
    for topic, queue_id in _present(snapshot, predicate):
        held = snapshot.queue_range(topic, queue_id)
        if 0 < held.min_offset == _wanted_range(predicate, topic, queue_id, held)[0]:
            lost.append(f"consume queue {topic}/{queue_id} begins at {held.min_offset}")
    for topic, queue_id in sorted(_consumed(snapshot)):
        is_wanted = predicate.topics is None or topic in predicate.topics
        is_gone = (topic, queue_id) not in snapshot.queue_paths
        is_gone &= not is_deleted_topic(topic, snapshot.topic_configs)
        is_gone &= not has_batch_queues(snapshot, topic) and not topic.startswith(LMQ_PREFIX)
        if is_wanted and is_gone and _wants_queue(predicate, queue_id):
            lost.append(f"consume queue {topic}/{queue_id}, which a group has read, is missing")
    return lost


def _consumed(snapshot: StoreSnapshot) -> set[tuple[str, int]]:
    """Return the queues from which groups have consumed messages."""
    return {
        (topic, queue_id)
        for (_, topic), queues in load_consumer_offsets(snapshot.directory).items()
        for queue_id, offset in queues.items()
        if offset > 0
    }


def _uncovered(snapshot: StoreSnapshot, start: int, stop: int) -> tuple[list[Range], str]:
    """Return the ranges that no unit covers, and in words what is trusted if not all was read."""
    is_told = snapshot.topic_configs is not None
    try:
        return uncovered(snapshot, start, stop, None if is_told else MAX_UNITS), ""
    except UncountedError as err:
        if not is_told:  # a queue whose directory is lost would be missed
            raise UnprovedError("it is not known which queues the topics have") from err
        return [], "assumes that the topics have no other queues than those found"
    except OverlapError as err:
        raise UnprovedError(
            f"several units claim the same bytes of the log, at offset {err}"
        ) from err


def _topics(snapshot: StoreSnapshot, predicate: ScanPredicate) -> list[str]:
    if predicate.topics is not None:
        return sorted(predicate.topics)
    paths = (*snapshot.queue_paths, *snapshot.batch_queue_paths)
    return sorted({topic for topic, _ in paths if not topic.startswith(LMQ_PREFIX)})


def _present(snapshot: StoreSnapshot, predicate: ScanPredicate) -> list[tuple[str, int]]:
    topics = frozenset(_topics(snapshot, predicate))
    return [
        (topic, queue_id)
        for topic, queue_id in snapshot.queue_paths
        if topic in topics and _wants_queue(predicate, queue_id)
    ]


def _queue_ids(
    snapshot: StoreSnapshot, topic: str, predicate: ScanPredicate, *, forced: bool
) -> list[int]:
    if snapshot.kind.queue_database:
        raise UnprovedError("they are in a RocksDB database, which cannot be read")
    present = {queue_id for name, queue_id in snapshot.queue_paths if name == topic}
    if has_batch_queues(snapshot, topic):
        raise UnprovedError(f"topic {topic} has batch consume queues")
    if not forced:
        _check_complete(snapshot, topic, present, predicate)
    return sorted(i for i in present if _wants_queue(predicate, i))


def _wants_queue(predicate: ScanPredicate, queue_id: int) -> bool:
    if predicate.queue_ids is not None and queue_id not in predicate.queue_ids:
        return False
    return predicate.queue_id_range.contains(queue_id)


def _check_complete(
    snapshot: StoreSnapshot, topic: str, present: set[int], predicate: ScanPredicate
) -> None:
    configs = snapshot.topic_configs
    if configs is None and present:  # as `MessageStore` writes it: directories name the queues
        return
    config = (configs or {}).get(topic)
    if config is None:
        raise UnprovedError(f"config/topics.json does not name topic {topic}")
    named = max(config.read_queue_nums, config.write_queue_nums)  # a damaged file may say 10**30
    wanted = predicate.queue_id_range
    ids = range(
        max(wanted.start or 0, 0), named if wanted.stop is None else min(named, wanted.stop)
    )
    asked = sorted(predicate.queue_ids) if predicate.queue_ids is not None else ids
    for queue_id in asked:
        if queue_id in ids and queue_id not in present:
            raise UnprovedError(f"topic {topic} has no consume queue {queue_id}")


def _read_queue(
    snapshot: StoreSnapshot, topic: str, queue_id: int, predicate: ScanPredicate, *, forced: bool
) -> _Queue:
    where = f"consume queue {topic}/{queue_id}"
    try:
        queue = snapshot.consume_queue(topic, queue_id)
        if queue is None:
            raise UnprovedError(f"{where} does not exist")
        held = snapshot.queue_range(topic, queue_id)
        low, high = _wanted_range(predicate, topic, queue_id, held)
        if high - low > MAX_UNITS:
            raise UnprovedError(f"more than {MAX_UNITS:,} units of {where} are requested")
        units = queue.read_units(low, high)
        # Records before the first or after the last unit matter only if they are selected.
        front = 0 if forced or low > held.min_offset else _front(snapshot, queue, held, units)
        cut = forced or high < held.max_offset
        tail = snapshot.end_offset if cut else _tail(snapshot, queue, held)
    except (CorruptRecordError, StoreFormatError, StoreReadError) as err:
        if forced:
            raise
        raise UnprovedError(f"{where} is damaged: {err}") from err
    if not forced and not (_are_in_order(units) and _is_aligned(snapshot, low, units)):
        raise UnprovedError(f"{where}: its units are not contiguous")
    return _Queue(_with_tags(units, topic, predicate), front, tail)


def _wanted_range(
    predicate: ScanPredicate, topic: str, queue_id: int, held: QueueRange
) -> tuple[int, int]:
    """Return the range of the queue's offsets that the predicate selects."""
    wanted = predicate.queue_offset_range
    lows = (wanted.start, _bound(predicate, "starting_offsets", topic, queue_id))
    highs = (wanted.stop, _bound(predicate, "ending_offsets", topic, queue_id))
    low = max([held.min_offset, *(n for n in lows if n is not None)])
    high = min([held.max_offset, *(n for n in highs if n is not None)])
    return low, max(low, high)


def _are_in_order(units: npt.NDArray[np.void]) -> bool:
    offsets = units["commit_log_offset"]
    return bool((np.diff(offsets) > 0).all() and (units["message_size"] > 0).all())


def _is_aligned(snapshot: StoreSnapshot, first_offset: int, units: npt.NDArray[np.void]) -> bool:
    """Return whether the first and last unit are at the queue offsets their records name."""
    for row in {0, len(units) - 1} if len(units) else ():
        start = int(units["commit_log_offset"][row])
        segment = snapshot.log.segments.find(start)
        if segment is None:
            return False
        frames = snapshot.log.frames_at(segment, np.array([start]), snapshot.end_offset)
        if not frames.ok[0] or frames.column("queue_offset")[0] != first_offset + row:
            return False
    return True


def _front(
    snapshot: StoreSnapshot, queue: StoredUnits, held: QueueRange, units: npt.NDArray[np.void]
) -> int:
    """Return the log offset before which records of the queue may have no unit."""
    if held.max_offset == 0:
        return snapshot.end_offset  # a directory without units: its files were lost
    if held.min_offset == 0 or _is_expired(snapshot, queue, held.min_offset - 1):
        return 0  # the first message ever, or the previous unit points below the log
    if len(units) == 0:
        return snapshot.end_offset
    return int(units["commit_log_offset"][0])


def _is_expired(snapshot: StoreSnapshot, queue: StoredUnits, queue_offset: int) -> bool:
    """Return whether the unit points to a whole record below the log's start.

    Garbage can hold a smaller offset still, so its sign and size are checked as well.
    """
    if queue_offset < queue.first_unit_offset():
        return False
    unit = queue.read_units(queue_offset, queue_offset + 1)
    start, size = int(unit["commit_log_offset"][0]), int(unit["message_size"][0])
    return start >= 0 and size > 0 and start + size <= snapshot.min_phy_offset


def _tail(snapshot: StoreSnapshot, queue: StoredUnits, held: QueueRange) -> int:
    """Return the log offset after which records of the queue may have no unit.

    If the last file is full, the next one may be lost; if units follow the last valid one, units
    in between may be.
    """
    file_end = queue.stored_end()
    if file_end - held.max_offset > MAX_UNITS:  # a file far past the others, or of any length
        raise UnprovedError(
            f"more than {MAX_UNITS:,} units could follow the last one of consume queue "
            f"{queue.topic}/{queue.queue_id}"
        )
    rest = queue.read_units(held.max_offset, file_end)
    below = (rest["message_size"] > 0) & (rest["commit_log_offset"] < snapshot.end_offset)
    if held.max_offset == file_end or below.any():
        return held.last_end
    return snapshot.end_offset


def _with_tags(
    units: npt.NDArray[np.void], topic: str, predicate: ScanPredicate
) -> npt.NDArray[np.void]:
    """Return the units whose record may have one of the tags.

    Brokers write hashes of 32 bits. Any other code is an address of the extension file or damage,
    so its record is read.
    """
    if predicate.tags is None or topic == SCHEDULE_TOPIC:
        return units
    codes = np.array([string_hash(tag) for tag in predicate.tags], np.int64)
    tags_code = units["tags_code"]
    is_no_hash = (tags_code <= MAX_EXT_ADDRESS) | (tags_code > _MAX_HASH)
    return units[np.isin(tags_code, codes) | is_no_hash]


def _bound(predicate: ScanPredicate, name: str, topic: str, queue_id: int) -> int | None:
    bound = getattr(predicate, name)
    return None if bound is None else bound.offset_of(topic, queue_id)


def _joined(columns: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(c.astype(np.int64) for c in columns)])


# Every dispatched record has a unit in at least one queue. The units of all queues together
# therefore cover the log, except for the blank records that close its segments and for records that
# are in no queue.
class UncountedError(Exception):
    """The queues are damaged or too many to read for the proof."""


class OverlapError(Exception):
    """Two units claim the same bytes of the log, so one of them is damaged."""


def uncovered(
    snapshot: StoreSnapshot, start: int, stop: int, most_units: int | None = None
) -> list[Range]:
    """Return the ranges of the log in ``[start, stop)`` that no unit covers, ascending.

    Parameters
    ----------
    most_units
        Limit of the units to read; a million (2**20) if None.

    Raises
    ------
    UncountedError
        There are more units or queues than the limits, or a queue is damaged.
    OverlapError
        Units of different records claim the same bytes.
    """
    if start >= stop:
        return []
    most = _MOST_QUEUES if snapshot.directory.is_local else _MOST_REMOTE_QUEUES
    if len(snapshot.queue_paths) + len(snapshot.batch_queue_paths) > most:
        raise UncountedError
    try:
        begins, ends = _units(snapshot, start, stop, most_units or _MOST_UNITS)
    except (CorruptRecordError, StoreFormatError) as err:
        raise UncountedError from err
    order = np.argsort(begins, kind="stable")
    reached = np.empty(len(ends) + 1, np.int64)  # by the units before each one
    reached[0] = start
    np.take(ends, order, out=reached[1:], mode="clip")  # without a copy for the sake of an error
    np.maximum.accumulate(reached, out=reached)
    begins = np.append(begins.take(order), stop)
    inside = begins[:-1] < reached[:-1]
    if inside.any():
        _check_overlaps(begins[:-1], ends.take(order), inside)
    rows = np.flatnonzero(begins > reached + snapshot.log.header_bytes(reached))
    holes = zip(reached[rows].tolist(), begins[rows].tolist())
    return [(low, high) for low, high in holes if not _closes_segment(snapshot, low, high)]


def _check_overlaps(begins: Int64s, ends: Int64s, inside: npt.NDArray[np.bool_]) -> None:
    """Raise if a unit that begins inside of others is not the same as the one before."""
    is_other = (begins[1:] != begins[:-1]) | (ends[1:] != ends[:-1])  # light queues share records
    inside[1:] &= is_other
    if inside.any():
        raise OverlapError(int(begins[np.argmax(inside)]))


def _closes_segment(snapshot: StoreSnapshot, start: int, stop: int) -> bool:
    """Return whether a blank record fills the range up to the end of its segment."""
    segment = snapshot.log.segments.find(start)
    if segment is None:
        return False
    end = segment.from_offset + snapshot.log.segments.file_size
    following = snapshot.log.segments.find(end)
    if stop not in {end, end + (following.header_bytes if following else 0)}:
        return False
    records = snapshot.log.records(segment, end)
    return records.blank_bytes(start - segment.from_offset) == end - start


def _units(snapshot: StoreSnapshot, start: int, stop: int, left: int) -> tuple[Int64s, Int64s]:
    """Return the begins and ends of all units' records that begin in ``[start, stop)``."""
    found, total = [], 0
    for topic, queue_id in snapshot.prefetched_queues(snapshot.queue_paths, units=True):
        queue, held = snapshot.consume_queue(topic, queue_id), snapshot.queue_range(topic, queue_id)
        if queue is None or held.max_offset == 0:
            continue
        low = max(queue.correct_min_offset(start, held.max_offset), held.min_offset)
        high = max(queue.correct_min_offset(stop, held.max_offset), low)
        total += high - low
        if total > left:
            raise UncountedError
        found.append(queue.exact_units(low, high))
    for key in snapshot.batch_queue_paths:
        of_batches = snapshot.batch_units(*key)
        if of_batches is not None:
            log, end = snapshot.log, snapshot.end_offset
            found.append(proved_batch_units(of_batches, key, log, end))
    begins, ends = np.empty((2, sum(map(len, found))), np.int64)  # a million units each, often
    at = 0
    for units in found:
        rows = slice(at, at + len(units))
        begins[rows] = units["commit_log_offset"]
        np.add(begins[rows], units["message_size"], out=ends[rows])
        at += len(units)
    inside = (begins >= start) & (begins < stop) & (ends > begins)
    return (begins, ends) if inside.all() else (begins[inside], ends[inside])
