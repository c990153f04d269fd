# SPDX-License-Identifier: Apache-2.0
"""The files of one queue of segments, each named after the offset of its first byte."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import StoreFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Callable

    from store_core.files.store_directory import FileEntry

_SEGMENT_NAME = re.compile(r"[0-9]{20}")
_MAX_OFFSET = 2**63 - 1


class Segment(NamedTuple):
    """One file; ``size`` is its real length, even if that is not the nominal one.

    ``header_bytes`` is the length of the header before each record: of a DLedger entry, else 0.
    """

    from_offset: int
    path: str
    size: int
    header_bytes: int = 0


class SegmentList:
    """Segments by offset.

    Parameters
    ----------
    file_size
        Nominal bytes of a segment; 0 only if there is no segment and the size is unknown.
    """

    def __init__(self, segments: Sequence[Segment], file_size: int) -> None:
        self.segments = tuple(segments)
        self.file_size = file_size
        self._starts = [segment.from_offset for segment in self.segments]

    def __len__(self) -> int:
        return len(self.segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    @property
    def min_offset(self) -> int:
        """Offset of the first byte of the first file; 0 if there is none."""
        return self.segments[0].from_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """End of the last file (exclusive); 0 if there is none."""
        return self.segments[-1].from_offset + self.segments[-1].size if self.segments else 0

    @property
    def has_holes(self) -> bool:
        """Whether files are missing in between."""
        return any(b - a > self.file_size for a, b in zip(self._starts, self._starts[1:]))

    def find(self, offset: int) -> Segment | None:
        """Return the segment with ``offset`` in its ``[from_offset, from_offset + file_size)``.

        Its real ``size`` may end before ``offset``.
        """
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or offset >= self._starts[at] + self.file_size:
            return None
        return self.segments[at]


_LISTINGS = 4


def list_segments(
    entries: Callable[[], Sequence[FileEntry]],
    *,
    file_size: int | None,
    unit_bytes: int = 1,
    option: str,
    forget: Callable[[], None] | None = None,
) -> SegmentList:
    """Return `load_segments` of a listing, or of a later one if files are missing in between.

    A listing takes time: if files are deleted meanwhile, oldest first, it may have the first and
    lack the second. ``forget`` is called before each further listing.
    """
    found = load_segments(entries(), file_size=file_size, unit_bytes=unit_bytes, option=option)
    for _ in range(_LISTINGS if found.has_holes else 0):
        before = found.segments
        if forget is not None:
            forget()
        found = load_segments(entries(), file_size=file_size, unit_bytes=unit_bytes, option=option)
        if found.segments == before or not found.has_holes:
            break
    return found


def load_segments(
    entries: Sequence[FileEntry],
    *,
    file_size: int | None,
    unit_bytes: int = 1,
    option: str,
) -> SegmentList:
    """Pick the segments of a listing as ``MappedFileQueue`` does (RocketMQ 5.3.3).

    Names that are not 20 digits and an empty last file are skipped. A file whose length is not the
    nominal one is included with its real size; the caller decides whether that is damage.

    Parameters
    ----------
    file_size
        Nominal bytes, rounded up to whole units. If None, the length all files share if their names
        are multiples of it, else the smallest distance of adjacent names, else the length.

    Raises
    ------
    StoreFormatError
        A name is not a multiple of the nominal size, is too large, occurs twice, or belongs to
        something other than a regular file; or the size is not a multiple of ``unit_bytes``.
    """
    segments = _named_segments(entries)
    if segments and segments[-1].size == 0:
        segments.pop()
    if file_size is None:
        nominal = _seen_file_size(segments)
        hint = f"; give its size with option {option}"
    else:
        nominal = -(-file_size // unit_bytes) * unit_bytes
        hint = f" (option {option})"
    for segment in segments:
        if nominal <= 0 or segment.from_offset % nominal:
            text = f"the name is not a multiple of the file size {nominal}{hint}"
            raise StoreFormatError(text, segment.path)
    if segments and segments[-1].from_offset > _MAX_OFFSET - max(nominal, segments[-1].size):
        text = f"a file of this name with {nominal} bytes would end after the largest offset"
        raise StoreFormatError(text, segments[-1].path)
    if segments and nominal % unit_bytes:
        text = f"the file size {nominal} is not a multiple of {unit_bytes}{hint}"
        raise StoreFormatError(text, segments[-1].path)
    return SegmentList(segments, nominal)


def _named_segments(entries: Sequence[FileEntry]) -> list[Segment]:
    named = [entry for entry in entries if _SEGMENT_NAME.fullmatch(entry.name)]
    for entry in named:
        if entry.is_dir or entry.not_a_file:  # skipping it would lose data
            kind = entry.not_a_file or "a directory"
            raise StoreFormatError(f"is {kind}, where a regular file was expected", entry.path)
    segments = sorted(Segment(int(entry.name), entry.path, entry.size) for entry in named)
    for before, after in zip(segments, segments[1:]):
        if before.from_offset == after.from_offset:
            raise StoreFormatError(f"{before.path} has the same name", after.path)
    if segments and segments[-1].from_offset > _MAX_OFFSET:
        raise StoreFormatError("the name is larger than a byte offset can be", segments[-1].path)
    return segments


def _seen_file_size(segments: Sequence[Segment]) -> int:
    if not segments:
        return 0
    length = segments[0].size
    # Tried first, because distances mislead if a file in between is lost.
    if length > 0 and all(s.size == length and s.from_offset % length == 0 for s in segments):
        return length
    distances = [b.from_offset - a.from_offset for a, b in zip(segments, segments[1:])]
    return min(distances) if distances else length


def merged_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges ascending and disjoint, merging those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged
