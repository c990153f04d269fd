"""A look at a store that costs little: whether anything can have changed since a full look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqsource.stream.log_marks import MarkState, mark_state
from store_core.errors import StoreReadError
from store_core.layout.store_paths import ABORT_FILE, CHECKPOINT_FILE
from store_core.log.commit_log import commit_log_directories

if TYPE_CHECKING:
    from rmqsource.stream.log_marks import LogMark
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.store_directory import StoreDirectory
    from store_core.store_snapshot import StoreSnapshot

_HEAD_BYTES = 64


class LogWatch:
    """What a store looked like just before a full look at it.

    A record is never written where the log ends without its first bytes changing there; segments
    come and go in a listing; a broker that starts, and may cut the log, writes ``abort``.

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
        self._with_checkpoint = with_checkpoint
        self._before = self._listing()
        self._end: tuple[str, int] | None = None
        self._mark: tuple[str, int, bytes] | None = None

    def settle(self, snapshot: StoreSnapshot, last: LogMark | None) -> None:
        """Take down where the log ended in that look, and the last record that counts."""
        log, end = snapshot.log, snapshot.end_offset
        segment = log.segments.find(end) or log.segments.find(end - 1)
        if segment is not None:
            self._end = (segment.path, end - segment.from_offset)
        held = log.segments.find(last.offset) if last else None
        if last is not None and held is not None and mark_state(log, last) is MarkState.HELD:
            at = last.offset - held.from_offset
            self._mark = (held.path, at, self._read(held.path, at))

    def is_unchanged(self) -> bool:
        """Return whether a full look would find what it found: sure when true."""
        if self._end is None:
            return False
        try:
            if self._before != self._listing() or any(self._read(*self._end)):
                return False
            if self._mark is None:
                return True
            path, at, head = self._mark
            return self._read(path, at) == head
        except StoreReadError:
            return False

    def _read(self, path: str, position: int) -> bytes:
        with self._directory.open(path) as source:
            return source.read_at(position, _HEAD_BYTES)

    def _listing(self) -> tuple[object, ...]:
        directory = self._directory
        entries = tuple(
            (entry.path, entry.size)
            for path in commit_log_directories(directory, self._config)
            for entry in directory.list(path)
        )
        abort = directory.stat(directory.resolve(ABORT_FILE))
        checkpoint = None
        if self._with_checkpoint:
            checkpoint = directory.read_head(directory.resolve(CHECKPOINT_FILE), 64)
        return entries, abort, checkpoint
