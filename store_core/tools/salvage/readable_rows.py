"""Which records of a batch are good: the frame is, and everything that a CRC covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store_core.codec.gather import gather_binary
from store_core.codec.java_string import decode_utf8
from store_core.log.record_checks import crc_failures
from store_core.queue.queue_directories import is_directory_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames


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
    """Return the rows that must not be taken over, with what is known of them.

    Parameters
    ----------
    frames
        Only rows that are ``ok``.
    topic_codes
        See `TopicCodes`.
    most_bytes
        Of a record that a segment of the new log takes.
    """
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
