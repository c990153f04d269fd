"""Whether anything stands behind a place in the files of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store_core.files.segment_list import Segment
    from store_core.files.store_directory import StoreDirectory

_CHUNK_BYTES = 1 << 20
_FIRST_BYTES = 1 << 12  # most queues are short, and their files end with one hole


def has_data_behind(directory: StoreDirectory, segments: Iterable[Segment], position: int) -> bool:
    """Tell whether a byte other than zero lies at or behind a byte position of a queue.

    Holes of the files are not read.
    """
    for segment in segments:
        at = max(position - segment.from_offset, 0)
        if at >= segment.size:
            continue
        length = _FIRST_BYTES
        with directory.open(segment.path) as source:
            while (at := source.next_data(at)) < source.size:
                if source.read_at(at, length).strip(b"\0"):
                    return True
                at, length = at + length, _CHUNK_BYTES
    return False
