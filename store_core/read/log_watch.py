# SPDX-License-Identifier: Apache-2.0
"""A cheap check whether anything in a store can have changed since it was last read."""

from __future__ import annotations

import time
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import StoreReadError
from store_core.layout import ABORT_FILE, CHECKPOINT_FILE
from store_core.log.commit_log import commit_log_directories, scan_frames
from store_core.log.dledger_log import dledger_directories
from store_core.log.log_scan import skip_gap

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.log.commit_log import ReadableLog
    from store_core.read.readable_store import ReadableStore

_HEAD_BYTES = 64
_AT_REST_MS = 5_000
"""Coarser than the times of any file system; some have no times (0) for directories."""
WATCHED_BYTES = 64
_DIGEST_BYTES = 8
_NEAR_BYTES = 1 << 20


class LogWatch:
    """A store's state just before it is read in full, to detect later changes.

    A new record changes the first bytes after the log's end; segments that come and go change their
    directory; a broker that starts, and may cut the log, writes ``abort``. The cost of a check does
    not grow with the store.
    """

    def __init__(
        self, directory: StoreDirectory, config: MessageStoreConfig, *, with_checkpoint: bool
    ) -> None:
        self._directory, self._config = directory, config
        self._log_directories = commit_log_directories(directory, config)
        self._abort = directory.resolve(ABORT_FILE)
        self._checkpoint = directory.resolve(CHECKPOINT_FILE) if with_checkpoint else None
        self._before = self._state()
        self._heads: dict[str, list[tuple[int, bytes]]] = {}
        self._is_empty = False

    def remember(self, snapshot: ReadableStore, last: LogMark | None) -> None:
        """Note the end of the log in a snapshot, and its last record that counts."""
        log, end = snapshot.log, snapshot.end_offset
        segment = log.segments.find(end) or log.segments.find(end - 1)
        if segment is None:
            has_none = next(iter(log.segments), None) is None  # `_state` detects a first one
            self._is_empty = has_none and not dledger_directories(self._directory, self._config)
            return
        at = end - segment.from_offset
        self._heads = {segment.path: [(at, bytes(min(_HEAD_BYTES, segment.size - at)))]}
        held = log.segments.find(last.offset) if last else None
        if last is not None and held is not None and mark_state(log, last) is MarkState.HELD:
            at = last.offset - held.from_offset
            head = log.source(held).read_at(at, _HEAD_BYTES)
            self._heads.setdefault(held.path, []).append((at, head))

    def is_unchanged(self) -> bool:
        """Return True if reading the store again would certainly find nothing new."""
        try:
            return (
                (self._is_empty or bool(self._heads))
                and self._before == self._state()
                and all(self._is_held(path, heads) for path, heads in self._heads.items())
            )
        except StoreReadError:
            return False

    def _is_held(self, path: str, heads: list[tuple[int, bytes]]) -> bool:
        with self._directory.open(path) as source:
            return all(source.read_at(at, _HEAD_BYTES) == head for at, head in heads)

    def _state(self) -> tuple[object, ...]:
        checkpoint = None
        if self._checkpoint is not None:
            checkpoint = self._directory.read_head(self._checkpoint, _HEAD_BYTES)
        segments = [self._segments(path) for path in self._log_directories]
        return segments, self._directory.stat(self._abort), checkpoint

    def _segments(self, path: str) -> object:
        """Return a value that changes when a segment comes or goes.

        A directory that has just changed may keep its time when it changes again.
        """
        entry = self._directory.stat(path)
        if entry is not None and 0 < entry.modified_ms < time.time() * 1000 - _AT_REST_MS:
            return entry.modified_ms
        return [found.path for found in self._directory.list(path)]


# The first bytes of a record contain its size, CRC, queue, queue offset, physical offset and times,
# so a short digest of them identifies it.
class LogMark(NamedTuple):
    """A record: its start, a digest of its first 64 bytes, and its store time in ms."""

    offset: int
    head: str
    store_timestamp: int


class MarkState(Enum):
    """What became of a marked record."""

    HELD = "it is there"
    EXPIRED = "it was deleted with its segment"
    REPLACED = "other bytes are there"
    GONE = "the log ends before it"


def mark_state(log: ReadableLog, mark: LogMark) -> MarkState:
    """Return what became of a marked record."""
    if mark.offset < log.min_offset:
        return MarkState.EXPIRED
    head = _head(log, mark.offset)
    if len(head) < WATCHED_BYTES or not any(head):
        return MarkState.GONE
    return MarkState.HELD if _digest(head) == mark.head else MarkState.REPLACED


def mark_at(log: ReadableLog, offset: int, end_offset: int) -> LogMark | None:
    """Return the mark of the record that begins at an offset; None if none does."""
    time_ms = log.store_timestamp_at(offset, end_offset)
    return None if time_ms is None else LogMark(offset, _digest(_head(log, offset)), time_ms)


def mark_before(log: ReadableLog, begin: int, end: int) -> LogMark | None:
    """Return the mark of the last record in ``[begin, end)``; None if there is none."""
    near = max(begin, end - _NEAR_BYTES)
    last = _last_record(log, near, end)
    if last < 0 and near > begin:
        last = _last_record(log, max(begin, _segment_before(log, end)), end)
    return mark_at(log, last, end) if last >= 0 else None


def _last_record(log: ReadableLog, begin: int, end: int) -> int:
    last = -1
    for frames in scan_frames(log, begin, end, on_gap=skip_gap):
        last = int(frames.column("commit_log_offset")[-1])
    return last


def _segment_before(log: ReadableLog, end: int) -> int:
    """Return the start of the last segment that begins with a record before ``end``; 0 if none."""
    before = [s for s in log.segments if s.from_offset < end]
    held = [s.from_offset for s in before if log.first_store_timestamp(s, end) is not None]
    return max(held, default=0)


def _head(log: ReadableLog, offset: int) -> bytes:
    segment = log.segments.find(offset)
    if segment is None:
        return b""
    return log.source(segment).read_at(offset - segment.from_offset, WATCHED_BYTES)


def _digest(head: bytes) -> str:
    return blake2b(head, digest_size=_DIGEST_BYTES).hexdigest()
