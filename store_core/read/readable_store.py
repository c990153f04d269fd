# SPDX-License-Identifier: Apache-2.0
"""The interface of a store that queries read: a snapshot, or a store that this process writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from store_core.config.config_files import TopicConfig
    from store_core.index.index_queries import IndexQueries
    from store_core.log.commit_log import ReadableLog
    from store_core.log.record_reader import RecordReader
    from store_core.queue.readable_queue import ReadableQueue
    from store_core.state.checkpoint import StoreCheckpoint
    from store_core.state.store_state import StoreState


class ReadableStore(Protocol):
    """A store at one moment, for one thread; nothing after its end is visible.

    Implemented by ``StoreSnapshot``, for files that another process may write, and by
    ``PinnedStore``, for a store that this process writes.
    """

    @property
    def log(self) -> ReadableLog:
        """The log."""

    @property
    def reader(self) -> RecordReader:
        """Reads single records of the log."""

    @property
    def min_phy_offset(self) -> int:
        """First byte of the log; -1 if it is empty."""

    @property
    def end_offset(self) -> int:
        """End of the readable log, exclusive; 0 if it is empty."""

    @property
    def index(self) -> IndexQueries:
        """The index files."""

    @property
    def state(self) -> StoreState:
        """Whether the store is stopped, crashed or live."""

    @property
    def checkpoint(self) -> StoreCheckpoint | None:
        """The checkpoint file's content; None without one, and for a store this process writes."""

    @property
    def topic_configs(self) -> Mapping[str, TopicConfig] | None:
        """Topics by name; None if unknown."""

    @property
    def queue_paths(self) -> Collection[tuple[str, int]]:
        """Consume queues: (topic, queue id)."""

    @property
    def batch_queue_paths(self) -> Collection[tuple[str, int]]:
        """Batch consume queues: (topic, queue id)."""

    def queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        """Return a queue of either kind with its readable range; None if there is none."""

    def store_timestamp_at(self, commit_log_offset: int) -> int | None:
        """Return the store time (ms) of the record that starts there; None if none does."""
