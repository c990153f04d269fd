# SPDX-License-Identifier: Apache-2.0
"""The plan of a read: its splits, and the facts about them that are shown to people."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Union

import numpy as np

from store_core.files.segment_list import merged_ranges
from store_core.log.log_scan import JOIN_BYTES, LogSlice, slice_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.files.remote_object import ObjectVersion
    from store_core.files.segment_list import SegmentList

COMMIT_LOG = "commitlog"
CONSUME_QUEUE_PATH = "consumequeue"
INDEX = "index"
COMPACTION = "compaction"
MESSAGE_ID = "message_id"
NOTHING = "none"

_MIN_BALANCED_BYTES = 4 << 20
"""Balancing does not make splits smaller than this: an empty one costs 27 ms."""


class SegmentPositions(NamedTuple):
    """Records of one segment by their physical offsets (ascending ``int64``, native order).

    For a remote store, ``sizes`` has the bytes of each record (``int32``), so that no more are
    fetched; empty if they are not known.
    """

    path: str
    from_offset: int
    file_size: int
    end_offset: int
    offsets: bytes
    sizes: bytes = b""

    def array(self) -> npt.NDArray[np.int64]:
        """Return the offsets."""
        return np.frombuffer(self.offsets, np.int64)

    def record_bytes(self) -> npt.NDArray[np.int64] | None:
        """Return the sizes of the records; None if they are not known."""
        return np.frombuffer(self.sizes, np.int32).astype(np.int64) if self.sizes else None


class CompactedSlice(NamedTuple):
    """Queue offsets ``[start, stop)`` of one compacted log.

    Attributes
    ----------
    units
        Number of units at planning; -1 if a broker may change them before the read.
    """

    topic: str
    queue_id: int
    start: int
    stop: int
    is_first: bool
    units: int


Part = Union[LogSlice, SegmentPositions, CompactedSlice]


@dataclass(frozen=True)
class Split:
    """Ranges of logs and single records that one task reads, in order.

    For a remote store, ``versions`` identifies the planned version of each file.
    """

    store: str
    parts: tuple[Part, ...]
    versions: Mapping[str, ObjectVersion] = field(default_factory=dict)


class SplitLimits(NamedTuple):
    """Limits on the size and number of splits."""

    max_bytes: int
    min_splits: int
    max_splits: int
    parallelism: int

    def target_bytes(self, total: int) -> int:
        """Return the split size at which few splits of equal size keep all cores busy."""
        count = max(-(-total // self.max_bytes), self.min_splits, 1)
        balanced = -(-count // self.parallelism) * self.parallelism
        if total // balanced >= _MIN_BALANCED_BYTES:
            count = balanced
        return max(-(-total // min(count, self.max_splits)), 1)


@dataclass(frozen=True)
class StorePlan:
    """The plan for one store."""

    store: str
    access_path: str
    reason: str
    splits: tuple[Split, ...]
    bytes_to_read: int
    bytes_skipped: int
    log_bytes_scanned: int
    missing_offsets: tuple[tuple[str, int, int, int], ...]
    end_offset: int
    missing_log: tuple[int, int] | None = None


Range = tuple[int, int]


def slices_of(
    segments: SegmentList,
    ranges: Sequence[Range],
    end_offset: int,
    target_bytes: int,
    exact: int | None = None,
) -> list[LogSlice]:
    """Cut ranges of the log at segment ends and into pieces of at most ``target_bytes``.

    ``exact`` is the start of a range whose first bytes no other range reads.
    """
    return [
        piece._replace(starts_exactly=True) if piece.start == exact else piece
        for start, stop in ranges
        for part in _segment_slices(segments, start, stop, end_offset)
        for piece in _pieces(part, target_bytes)
    ]


def _segment_slices(
    segments: SegmentList, start: int, stop: int, end_offset: int
) -> list[LogSlice]:
    found = []
    size = segments.file_size
    for i, segment in enumerate(segments.segments):
        part = slice_of(segment, size, start, stop, end_offset)
        if part is None:
            continue
        segment_end = segment.from_offset + size
        if i + 1 < len(segments) and stop >= segment_end:
            missing = min(segments.segments[i + 1].from_offset, end_offset) - segment_end
            part = part._replace(missing_bytes=max(missing, 0))
        found.append(part)
    return found


def _pieces(part: LogSlice, target_bytes: int) -> list[LogSlice]:
    stop = min(part.stop, part.end_offset)
    count = max(-(-(stop - part.start) // target_bytes), 1)
    step = -(-(stop - part.start) // count)
    cuts = [part.start + k * step for k in range(count)]
    pieces = [part._replace(start=a, stop=b, missing_bytes=0) for a, b in zip(cuts, cuts[1:])]
    return [*pieces, part._replace(start=cuts[-1])]


def place_records(
    segments: SegmentList,
    offsets: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    end_offset: int,
    target_bytes: int,
    fetched: npt.NDArray[np.int64] | None = None,
) -> list[tuple[SegmentPositions, int]]:
    """Cut ascending record offsets by segment and into pieces of about ``target_bytes``.

    For a remote store, ``fetched`` has the bytes to fetch for each record.
    """
    if len(offsets) == 0:
        return []
    costs = sizes if fetched is None else fetched
    base = offsets // segments.file_size
    bucket = (np.cumsum(costs) - costs) // target_bytes
    cuts = np.flatnonzero((np.diff(base) != 0) | (np.diff(bucket) != 0)) + 1
    pieces = []
    of_pieces = (np.split(column, cuts) for column in (offsets, sizes, costs))
    for some, lengths, cost in zip(*of_pieces):
        segment = segments.find(int(some[0]))
        if segment is not None:
            packed = np.ascontiguousarray(some).tobytes()
            known = b"" if fetched is None else lengths.astype(np.int32).tobytes()
            places = SegmentPositions(
                segment.path, segment.from_offset, segments.file_size, end_offset, packed, known
            )
            pieces.append((places, int(cost.sum())))
    return pieces


def fetched_bytes(
    offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], file_size: int
) -> npt.NDArray[np.int64]:
    """Return the bytes to fetch from a remote log for each record (ascending).

    Records close to each other are fetched together with the bytes between them. ``file_size`` is
    the size of segments; 0 if all records are in one segment.
    """
    gaps = np.diff(offsets) - sizes[:-1]
    joined = np.diff(offsets) <= JOIN_BYTES
    if file_size:
        joined &= np.diff(offsets // file_size) == 0
    fetched = sizes.copy()
    fetched[:-1] += np.where(joined, np.maximum(gaps, 0), 0)
    return fetched


def sized_slices(slices: Sequence[LogSlice]) -> list[tuple[LogSlice, int]]:
    """Return the slices, each with the bytes that it covers."""
    return [(piece, min(piece.stop, piece.end_offset) - piece.start) for piece in slices]


def group_parts(
    store: str,
    parts: Sequence[tuple[Part, int]],
    target_bytes: int,
    max_splits: int,
) -> list[Split]:
    """Combine small parts into splits of about ``target_bytes``.

    A split may be a sixteenth larger, so that parts cut at other bounds do not leave a small
    remainder. If that makes more than ``max_splits``, each split takes the parts that begin in an
    equal share of the bytes.
    """
    groups: list[list[Part]] = []
    tolerance = target_bytes // 16
    room = 0
    for part, length in parts:
        if length > room or not groups:
            groups.append([])
            room = target_bytes + tolerance
        groups[-1].append(part)
        room -= length
    if len(groups) > max_splits:
        groups = _equal_shares(parts, max_splits)
    return [Split(store, tuple(group)) for group in groups]


def _equal_shares(parts: Sequence[tuple[Part, int]], count: int) -> list[list[Part]]:
    total = max(sum(length for _, length in parts), 1)
    groups: dict[int, list[Part]] = {}
    at = 0
    for part, length in parts:
        groups.setdefault(min(at * count // total, count - 1), []).append(part)
        at += length
    return list(groups.values())


def merge_splits(splits: Sequence[Split], count: int) -> tuple[Split, ...]:
    """Join neighbouring splits of one store evenly, until at most ``count`` are left."""
    if len(splits) <= count:
        return tuple(splits)
    bounds = [i * len(splits) // count for i in range(count + 1)]
    return tuple(_merged(splits[a:b]) for a, b in zip(bounds, bounds[1:]))


def _merged(splits: Sequence[Split]) -> Split:
    parts = tuple(part for split in splits for part in split.parts)
    versions = {path: known for split in splits for path, known in split.versions.items()}
    return Split(splits[0].store, parts, versions)


def total_bytes(ranges: Sequence[Range]) -> int:
    """Return the total bytes of disjoint ranges."""
    return sum(stop - start for start, stop in ranges)


def clip_ranges(ranges: Sequence[Range], start: int, stop: int) -> list[Range]:
    """Return ascending, disjoint ranges inside ``[start, stop)``; overlaps are merged."""
    clipped = ((max(low, start), min(high, stop)) for low, high in ranges)
    return merged_ranges((low, high) for low, high in clipped if low < high)


def outside(offsets: npt.NDArray[np.int64], ranges: Sequence[Range]) -> npt.NDArray[np.bool_]:
    """Return which offsets are in none of the ranges."""
    keep = np.ones(len(offsets), np.bool_)
    for start, stop in ranges:
        keep &= (offsets < start) | (offsets >= stop)
    return keep
