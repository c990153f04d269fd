"""Where the last record ends that two logs have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.codec.record_walk import walk_records
from store_core.ha.end_comparison import segment_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from store_core.message_store import MessageStore

    Int64s = npt.NDArray[np.int64]

_ROWS = 1 << 16
_BYTES = 1 << 26


def end_of_common_records(store: MessageStore, start: int, stop: int) -> int | None:
    """Return where the last record ends that lies within ``[start, stop)``; None if none does.

    The end of a segment is that of its blank record, if all of it lies before ``stop``. Bytes that
    are equal prove little without a record: zeros are equal everywhere.
    """
    size = segment_size(store)
    segment = (stop - 1) - (stop - 1) % size
    low = max(store.min_phy_offset, start - start % size)
    while segment >= low:
        last, has_record = None, False
        for starts, ends in _records(store, segment):
            within = ends[ends <= stop]
            last = int(within[-1]) if len(within) else last
            has_record = has_record or bool((starts[: len(within)] >= start).any())
            if len(within) < len(ends):
                break
        if has_record:
            return last
        stop, segment = min(stop, segment), segment - size
    return None


def start_of_last_blank(store: MessageStore) -> int | None:
    """Return where the blank record begins with which the log ends; None if it ends otherwise."""
    end, size = store.max_phy_offset, segment_size(store)
    at = segment = (end - 1) - (end - 1) % size
    while 0 <= at < end:
        with store.commit_log_data(at, segment + size - at) as data:
            if data is None:
                return None
            walk = walk_records(data, 0, len(data), _ROWS, _BYTES)
        at += walk.stop
        if walk.blank:
            return at
        if walk.failed or not len(walk.starts):
            return None
    return None


def _records(store: MessageStore, segment: int) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield starts and ends of the records of one segment, in offset order, some at a time."""
    at, size = segment, segment_size(store)
    while True:
        with store.commit_log_data(at, segment + size - at) as data:
            if data is None:
                return
            walk = walk_records(data, 0, len(data), _ROWS, _BYTES)
        starts, at = walk.starts + at, at + walk.stop
        if walk.blank:
            starts, at = np.append(starts, at), segment + size
        if len(starts):
            yield starts, np.append(starts[1:], at)
        if not len(starts) or at >= segment + size:
            return
