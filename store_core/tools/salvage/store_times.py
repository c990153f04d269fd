"""Store times that one damaged header shows: no checksum covers them, their neighbours tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]

_SLACK_MS = 1000
_CHECKED_SLACK_MS = 10_000  # `check` reports what leaves both neighbours by more,
_END_SLACK_MS = 10 * 365 * 86_400_000  # and the first or last record, its only one by more
_LIMIT_MS = 1 << 61  # differences of clipped times fit into 64 bits


class CorrectedTime(NamedTuple):
    """A store time (ms) that could not be right, and what it became."""

    commit_log_offset: int
    store_timestamp: int
    new_store_timestamp: int


class StoreTimes:
    """Looks at the store times of all records in the order of the log.

    A broker's clock moves on, and may be set back; but it does not leave for a single record and
    come back at once. Such a record gets the time of the one before it: with its own, a search by
    time would end at it, and an index file might begin after its end.
    """

    def __init__(self) -> None:
        self.corrected: list[CorrectedTime] = []
        self._last: int | None = None

    def plausible(
        self, store_timestamps: Int64s, commit_log_offsets: Int64s, next_ms: int | None = None
    ) -> Int64s:
        """Return the times of the next records.

        Parameters
        ----------
        store_timestamps, commit_log_offsets
            Of the records of this call, at least one.
        next_ms
            Time of the record after them; None: the last one has no neighbour after it.
        """
        times = np.clip(store_timestamps, -_LIMIT_MS, _LIMIT_MS)
        is_begin = self._last is None
        before = np.concatenate([times[:1] if self._last is None else [self._last], times[:-1]])
        after = np.concatenate([times[1:], times[-1:] if next_ms is None else [next_ms]])
        if self._last is None and len(times) > 2 and times[0] > times[2]:  # noqa: PLR2004
            before[0] = times[2]  # of the first of all its followers tell, where it is later
        goes_on = after >= before - _SLACK_MS
        outside = (times < before - _SLACK_MS) | (times > np.maximum(before, after) + _SLACK_MS)
        low, high = np.minimum(before, after), np.maximum(before, after)
        away = np.maximum(low - times, times - high) > _CHECKED_SLACK_MS + (high - low)
        wrong = (goes_on & outside) | away
        # Where one leaps and the next falls behind it, one of both is odd, not both.
        leaps, falls = times > high + _SLACK_MS, times < before - _SLACK_MS
        wrong[:-1] &= ~(leaps[:-1] & (wrong & falls)[1:])
        if is_begin and len(times) > 1 and not wrong[:2].any():
            wrong[0] = abs(int(times[0]) - int(times[1])) > _END_SLACK_MS
            before[0] = times[1]
        if next_ms is None and not wrong[-2:].any():
            wrong[-1] = abs(int(times[-1]) - int(before[-1])) > _END_SLACK_MS
        times = store_timestamps
        rows = np.flatnonzero(wrong)
        if len(rows):
            times = times.copy()
            for row in rows.tolist():
                times[row] = times[row - 1] if row else before[0]
                found = (commit_log_offsets[row], store_timestamps[row], times[row])
                self.corrected.append(CorrectedTime(*map(int, found)))
        self._last = int(times[-1])
        return times
