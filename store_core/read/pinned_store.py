# SPDX-License-Identifier: Apache-2.0
"""A store that this process writes, as it is at one moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from store_core.files.segment_list import load_segments
from store_core.log.live_log import PinnedLog
from store_core.log.record_reader import RecordReader
from store_core.queue.consume_queue_ext import read_ext_units
from store_core.queue.queue_directories import CONSUME_QUEUE_EXT
from store_core.queue.queue_range import QueueRange
from store_core.queue.readable_queue import BatchQueue, SimpleQueue
from store_core.state.store_state import StoreState
from store_core.with_blocks import Closing

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from store_core.config.config_files import TopicConfig
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.index.index_file_set import LiveIndex, PinnedIndex
    from store_core.queue.consume_queue_ext import ExtUnits
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.readable_queue import ReadableQueue
    from store_core.state.checkpoint import StoreCheckpoint

    Int64s = npt.NDArray[np.int64]


class PinnedStore(Closing):
    """The store's content so far, while others append and expire; for one query in one thread.

    A `ReadableStore` and a context manager: files it has read stay mapped until it is closed.
    Records are seen whole or not at all.

    Log and index are each pinned at first access. To use both, or queues, access the log last: it
    then covers everything accessed before it.
    """

    state = StoreState.LIVE
    checkpoint: StoreCheckpoint | None = None
    topic_configs: Mapping[str, TopicConfig] | None = None

    def __init__(
        self,
        log: MappedFileQueue,
        queues: ConsumeQueueStore,
        index: LiveIndex,
        config: MessageStoreConfig,
        *,
        whole: bool = False,
    ) -> None:
        self._segments, self._queues, self._live_index = log, queues, index
        self._config, self._whole, self._uri = config, whole, queues.directory.uri
        self._log: PinnedLog | None = None
        self._index: PinnedIndex | None = None

    def __enter__(self) -> PinnedStore:
        if self._whole:
            try:
                self._index = self._live_index.pin()
                self._log = PinnedLog(self._segments, self._uri, whole=True)
            except BaseException:
                self.close()
                raise
        return self

    def close(self) -> None:
        """Release all files."""
        log, self._log = self._log, None
        if log is not None:
            log.close()
        index, self._index = self._index, None
        if index is not None:
            index.close()

    @property
    def log(self) -> PinnedLog:
        """The log, as it was at first access."""
        if self._log is None:
            self._log = PinnedLog(self._segments, self._uri)
        return self._log

    @property
    def reader(self) -> RecordReader:
        """Reads single records of the log."""
        return RecordReader(self.log, self.log.end_offset, self._uri)

    @property
    def index(self) -> PinnedIndex:
        """The index, as it was at first access."""
        if self._index is None:
            self._index = self._live_index.pin()
        return self._index

    @property
    def min_phy_offset(self) -> int:
        """First byte of the log; -1 if it is empty."""
        return self.log.min_offset

    @property
    def end_offset(self) -> int:
        """End of the readable log, exclusive; 0 if it is empty."""
        return self.log.end_offset

    @property
    def queue_paths(self) -> list[tuple[str, int]]:
        """Consume queues: (topic, queue id)."""
        return [key for key in self._queues.queues() if not self._is_batch(key)]

    @property
    def batch_queue_paths(self) -> list[tuple[str, int]]:
        """Batch consume queues: (topic, queue id)."""
        return [key for key in self._queues.queues() if self._is_batch(key)]

    def queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        """Return a queue with the units dispatched so far; None if there is no such queue."""
        batch = self._queues.find_batch(topic, queue_id)
        if batch is not None:
            per_file = batch.file_size // batch.unit_bytes
            return BatchQueue(batch.read_units(), per_file, self._segments.min_offset)
        queue = self._queues.find_simple(topic, queue_id)
        if queue is None:
            return None
        held = QueueRange(queue.min_offset, queue.max_offset)  # in this order: both only grow
        return SimpleQueue(queue, held, partial(self._read_ext, topic, queue_id))

    def store_timestamp_at(self, commit_log_offset: int) -> int | None:
        """Return the store time (ms) of the record that starts there; None if none does."""
        return self.log.store_timestamp_at(commit_log_offset, self.end_offset)

    def _read_ext(self, topic: str, queue_id: int, addresses: Int64s) -> ExtUnits:
        directory = self._queues.directory
        path = directory.resolve(CONSUME_QUEUE_EXT.directory, topic, str(queue_id))
        size = self._config.mapped_file_size_consume_queue_ext
        option = CONSUME_QUEUE_EXT.size_option
        segments = load_segments(directory.list(path), file_size=size, option=option)
        return read_ext_units(directory, segments, addresses)

    def _is_batch(self, key: tuple[str, int]) -> bool:
        return self._queues.find_batch(*key) is not None
