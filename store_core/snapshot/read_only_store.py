# SPDX-License-Identifier: Apache-2.0
"""Serves and follows a store that another process may write, for any number of threads."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable

from store_core.errors import FileVanishedError
from store_core.files.store_directory import StoreDirectory
from store_core.log.commit_log import scan_frames
from store_core.log.log_scan import skip_gap
from store_core.read.log_watch import LogWatch
from store_core.read.store_queries import StoreQueries
from store_core.snapshot.batch_end import dispatched_end
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.state.store_state import StoreState, require_queue_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig

_SHORTEST_REST_S, _LONGEST_REST_S = 0.01, 1.0
"""Pause between checks of queues that lag a log that does not grow."""


class ReadOnlyStore(StoreQueries):
    """Queries of a store that is open elsewhere, crashed, or damaged.

    Takes no lock, creates and changes nothing. A `StoreSnapshot` answers queries one at a time;
    `look` replaces it after something was written. A query that meets a damaged record raises
    `CorruptRecordError`, which names the place; other queries still work.

    Raises
    ------
    StoreNotFoundError
        There is no store.
    StoreKindError
        The store has a log or queues of a kind that cannot be served.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        on_dispatched: Callable[[RecordFrames], object] = lambda _: None,
    ) -> None:
        self.config = config
        self._on_dispatched = on_dispatched
        self._directory = StoreDirectory(config.store_path_root_dir)
        self._using = threading.RLock()
        self._watch = self._new_watch()
        self._snapshot = self._opened()
        self._told = self._first_told(self._snapshot)
        self._rest_s, self._due = _SHORTEST_REST_S, 0.0
        self._note_told()

    @property
    def directory(self) -> StoreDirectory:
        """The store root."""
        return self._directory

    @property
    def state(self) -> StoreState:
        """The store's state at the last look."""
        return self._snapshot.state

    @property
    def min_phy_offset(self) -> int:
        """First byte of the log; -1 if it is empty."""
        return self._snapshot.min_phy_offset

    @property
    def max_phy_offset(self) -> int:
        """End of the readable log, exclusive; 0 if it is empty."""
        return self._snapshot.max_phy_offset

    def queue_counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return how many plain and batch queues each topic has, judged by directories."""
        with self._using:
            return _counts(self._snapshot.queue_paths), _counts(self._snapshot.batch_queue_paths)

    def look(self) -> bool:
        """Pick up what was written since the last look; return whether there was anything.

        Cheap while nothing changes; one thread should call it every few milliseconds.

        Raises
        ------
        StoreReadError, StoreNotFoundError
            The store is gone or cannot be read now; queries still use the previous snapshot.
        """
        is_early = self._is_settled or time.monotonic() < self._due
        if is_early and self._watch.is_unchanged():
            return False
        self._watch = self._new_watch()
        try:
            is_new = self._take(self._opened())
        except FileVanishedError:  # a segment has just expired: the next look notices
            return False
        self._rest_s = _SHORTEST_REST_S if is_new else min(2 * self._rest_s, _LONGEST_REST_S)
        self._note_told()
        return is_new

    def dispatch_soon(self) -> None:
        """Do nothing: the process that puts messages dispatches them, and `look` finds them."""

    def reading(self) -> AbstractContextManager[StoreSnapshot]:
        """Pin the current snapshot for the length of a block; other queries wait."""
        return self._reading()

    def close(self) -> None:
        """Close the files."""
        with self._using:
            self._snapshot.close()

    def _new_watch(self) -> LogWatch:
        return LogWatch(self._directory, self.config, with_checkpoint=False)

    def _opened(self) -> StoreSnapshot:
        snapshot = StoreSnapshot(self._directory, self.config)
        try:
            require_queue_files(self._directory, "they cannot be served")
        except BaseException:
            snapshot.close()
            raise
        return snapshot

    @staticmethod
    def _first_told(snapshot: StoreSnapshot) -> int:
        """Return the offset from which records may still be dispatched."""
        if snapshot.state is not StoreState.LIVE:
            return snapshot.end_offset
        return dispatched_end(snapshot, max(snapshot.min_phy_offset, 0))

    def _take(self, snapshot: StoreSnapshot) -> bool:
        """Serve a new snapshot, report newly dispatched records; return whether there is news."""
        with self._using:
            before, self._snapshot = self._snapshot, snapshot
            before.close()
            told = min(self._told, snapshot.end_offset)  # the log may have been cut
            end = dispatched_end(snapshot, max(told, snapshot.min_phy_offset, 0))
            new = list(scan_frames(snapshot.log, told, end, on_gap=skip_gap))
        self._told = end
        for frames in new:
            self._on_dispatched(frames)
        return snapshot.end_offset != before.end_offset or bool(new)

    def _note_told(self) -> None:
        """Note whether all records of the log have been reported as dispatched."""
        self._is_settled = self._told >= self.max_phy_offset
        self._watch.remember(self._snapshot, None)
        self._due = time.monotonic() + self._rest_s

    @contextmanager
    def _reading(self, *, whole: bool = False) -> Iterator[StoreSnapshot]:
        del whole
        with self._using:
            try:
                yield self._snapshot
            except FileVanishedError:  # its segment has expired: `look` checks again
                self._is_settled, self._due = False, 0.0
                raise


def _counts(queues: Iterable[tuple[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    return counts
