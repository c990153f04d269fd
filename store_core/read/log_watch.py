"""A look at a store that costs little: whether anything can have changed since a full look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from store_core.errors import StoreReadError
from store_core.layout.store_paths import ABORT_FILE, CHECKPOINT_FILE
from store_core.log.commit_log import commit_log_directories
from store_core.log.dledger_log import dledger_directories
from store_core.read.log_marks import MarkState, mark_state

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.read.log_marks import LogMark
    from store_core.read.readable_store import ReadableStore

_HEAD_BYTES = 64
_AT_REST_MS = 5_000
"""Coarser than the times of any file system; some keep no times (0) of directories."""


class LogWatch:
    """What a store looked like just before a full look at it.

    A record is never written where the log ends without its first bytes changing there; where
    segments come and go, their directory changes; a broker that starts, and may cut the log, writes
    ``abort``. What it costs to look does not grow with the store.

    Parameters
    ----------
    directory, config
        The store.
    with_checkpoint
        Its checkpoint matters too.
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

    def settle(self, snapshot: ReadableStore, last: LogMark | None) -> None:
        """Take down where the log ended in that look, and the last record that counts."""
        log, end = snapshot.log, snapshot.end_offset
        segment = log.segments.find(end) or log.segments.find(end - 1)
        if segment is None:
            has_none = next(iter(log.segments), None) is None  # a first one is seen in `_state`
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
        """Return whether a full look would find what it found: sure when true."""
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
        """Return what changes when a segment comes or goes.

        The time of a directory that changed just now may stay the same when it changes once more.
        """
        entry = self._directory.stat(path)
        if entry is not None and 0 < entry.modified_ms < time.time() * 1000 - _AT_REST_MS:
            return entry.modified_ms
        return [found.path for found in self._directory.list(path)]
