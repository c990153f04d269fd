"""Which records of a batch are good: the frame is, and everything that a CRC covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.gather import gather_binary
from store_core.codec.java_string import decode_utf8
from store_core.codec.record_crcs import crc_failures
from store_core.queue.queue_directories import is_directory_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames

    Int64s = npt.NDArray[np.int64]

_SLACK_MS = 1000
_CHECKED_SLACK_MS = 10_000  # `check` reports what leaves both neighbours by more,
_END_SLACK_MS = 10 * 365 * 86_400_000  # and the first or last record, its only one by more
_LIMIT_MS = 1 << 61  # differences of clipped times fit into 64 bits


class RejectedRecord(NamedTuple):
    """A record whose frame is good, and which is damaged all the same."""

    commit_log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    reason: str


class TopicCodes:
    """Numbers the topics that were seen; names that no broker could have used have -1."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._code_of: dict[bytes, int] = {}

    def of(self, frames: RecordFrames) -> npt.NDArray[np.int64]:
        """Return the code of each row's topic."""
        raw = gather_binary(frames.data, frames.topic_start, frames.topic_length)
        encoded = raw.dictionary_encode()
        codes = [self._code(name) for name in encoded.dictionary.to_pylist()]
        code_of_row: npt.NDArray[np.int64] = np.array(codes, np.int64)[encoded.indices.to_numpy()]
        return code_of_row

    def _code(self, raw: bytes) -> int:
        code = self._code_of.get(raw)
        if code is None:
            code = -1
            try:
                name = raw.decode()
            except UnicodeDecodeError:
                name = ""
            if is_directory_name(name):
                code = len(self.names)
                self.names.append(name)
            self._code_of[raw] = code
        return code


def rejected_rows(
    frames: RecordFrames, topic_codes: npt.NDArray[np.int64], most_bytes: int
) -> dict[int, RejectedRecord]:
    """Return the rows that must not be taken over, with what is known of them."""
    reasons = crc_failures(frames)
    for row in np.flatnonzero(topic_codes < 0).tolist():
        reasons.setdefault(row, "its topic is none that a queue can have")
    for row in np.flatnonzero(frames.column("queue_id") < 0).tolist():
        reasons.setdefault(row, "its queue id is negative")
    for row in np.flatnonzero(frames.column("total_size") > most_bytes).tolist():
        reasons.setdefault(row, "it leaves no room for the end of its segment")
    return {row: rejected_row(frames, row, reason) for row, reason in sorted(reasons.items())}


def rejected_row(frames: RecordFrames, row: int, reason: str) -> RejectedRecord:
    """Return what is known of a row that is not taken over."""
    start = int(frames.topic_start[row])
    topic = frames.data[start : start + int(frames.topic_length[row])].tobytes()
    names = ("commit_log_offset", "total_size", "queue_id", "queue_offset")
    offset, size, queue_id, queue_offset = (int(frames.column(name)[row]) for name in names)
    return RejectedRecord(
        commit_log_offset=offset,
        size=size,
        topic=decode_utf8(topic),
        queue_id=queue_id,
        queue_offset=queue_offset,
        reason=reason,
    )


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
