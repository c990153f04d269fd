"""Where in the log the records of a job go: pure arithmetic, the same for planning and writing.

Source: RocketMQ ``DefaultAppendMessageCallback.doAppend`` (release 5.3.3): a record never spans
segments, and eight bytes at least are left behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.layout.message import BLANK_RECORD_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt


class Run(NamedTuple):
    """Rows ``[first, stop)`` lie back to back from ``commit_log_offset`` on, in one segment."""

    first: int
    stop: int
    commit_log_offset: int


def place(
    sizes: npt.NDArray[np.integer], position: int, segment_bytes: int
) -> tuple[list[Run], int]:
    """Return where records go that are appended at a position, and the position after them.

    Where a run does not begin at the end of the one before, a blank record closes the segment.

    Raises
    ------
    ValueError
        A record fits no segment.
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    runs: list[Run] = []
    first, begin = 0, 0
    while first < len(ends):
        left = segment_bytes - position % segment_bytes
        stop = int(np.searchsorted(ends, begin + left - BLANK_RECORD_BYTES, "right"))
        if stop == first:
            if left == segment_bytes:
                raise ValueError(f"{sizes[first]} bytes do not fit a segment of {segment_bytes}")
            position += left
            continue
        runs.append(Run(first, stop, position))
        position += int(ends[stop - 1]) - begin
        first, begin = stop, int(ends[stop - 1])
    return runs, position
