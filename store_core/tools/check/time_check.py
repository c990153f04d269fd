"""Compare store times with those of the neighbours in the log.

Records are stamped in the order of the log, so times only grow, but for a clock that is set back.
That leaves all later times lower and the delay since the producer's own stamp (born time) of the
record before it unchanged. A damaged time differs from both neighbours, which agree, in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store_core.codec.record_frames import RecordFrames

_SLACK_MS = 10_000
"""A clock that is set forth and back between three records by less is no damage."""
_END_SLACK_MS = 10 * 365 * 86_400_000
"""For the first and the last record, which have one neighbour: an idle broker makes large steps."""
_LIMIT_MS = 1 << 61  # differences of clipped times fit into 64 bits


class Outlier(NamedTuple):
    """A record whose store time does not fit, and the times around it (ms)."""

    commit_log_offset: int
    store_timestamp: int
    before: int
    behind: int


class StoreTimes:
    """Takes the records in the order of the log, a batch at a time; holds two of them."""

    def __init__(self) -> None:
        none = np.empty(0, np.int64)
        self._held: tuple[Any, ...] = (none, none, none)
        self._is_begin = True

    def add(self, frames: RecordFrames) -> Iterator[Outlier]:
        """Yield what of the records before the last one of the batch does not fit."""
        names = ("commit_log_offset", "store_timestamp", "born_timestamp")
        added = (frames.column(name).astype(np.int64) for name in names)
        at, stored, born = (np.concatenate(pair) for pair in zip(self._held, added))
        if len(at) > 1 and self._is_begin:
            yield from _end_outlier(at, stored, born, 0, 1)
            self._is_begin = False
        yield from _outliers(at, stored, born)
        self._held = (at[-2:], stored[-2:], born[-2:])

    def finish(self) -> Iterator[Outlier]:
        """Yield the last record if it does not fit."""
        at, stored, born = self._held
        if len(at) > 1:
            yield from _end_outlier(at, stored, born, -1, -2)


def _outliers(at: Any, stored: Any, born: Any) -> Iterator[Outlier]:
    stored = np.clip(stored, -_LIMIT_MS, _LIMIT_MS)
    low = np.minimum(stored[:-2], stored[2:])
    high = np.maximum(stored[:-2], stored[2:])
    middle = stored[1:-1]
    away = np.maximum(low - middle, middle - high) > _SLACK_MS + np.minimum(high - low, _LIMIT_MS)
    for row in np.flatnonzero(away).tolist():
        delays = [int(stored[i]) - int(born[i]) for i in (row, row + 1, row + 2)]
        if min(abs(delays[1] - delays[0]), abs(delays[1] - delays[2])) > _SLACK_MS:
            times = stored[row : row + 3].tolist()
            yield Outlier(int(at[row + 1]), times[1], times[0], times[2])


def _end_outlier(at: Any, stored: Any, born: Any, end: int, other: int) -> Iterator[Outlier]:
    time, neighbour = int(stored[end]), int(stored[other])
    delay, usual = time - int(born[end]), neighbour - int(born[other])
    if min(abs(time - neighbour), abs(delay - usual)) > _END_SLACK_MS:
        yield Outlier(int(at[end]), time, neighbour, neighbour)
