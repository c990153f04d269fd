"""The reading methods of a store that is open and being written by this process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from store_core.layout.store_paths import CONSUME_QUEUE_EXT_DIR
from store_core.log.live_log import PinnedLog
from store_core.log.record_reader import RecordReader
from store_core.queue.consume_queue import NATIVE_CQ_UNIT
from store_core.queue.consume_queue_ext import open_consume_queue_ext
from store_core.queue.queue_range import QueueRange
from store_core.queue.readable_queue import BatchQueue, SimpleQueue
from store_core.read.find_messages import KeySearch
from store_core.read.store_reads import StoreReads
from store_core.state.store_state import StoreState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from store_core.config.config_files import TopicConfig
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.index.index_queries import IndexQueries
    from store_core.index.live_index import LiveIndex, PinnedIndex
    from store_core.queue.consume_queue import Units
    from store_core.queue.consume_queue_ext import ConsumeQueueExt
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.queue.consume_queue_writer import ConsumeQueueWriter
    from store_core.queue.readable_queue import ReadableQueue
    from store_core.state.store_checkpoint import StoreCheckpoint


class LiveReads(StoreReads):
    """Reads what was appended so far, in any number of threads, while others write and expire.

    Each call pins what it needs: it answers for one moment, sees whole records only, and what it
    reads stays mapped until it returns. `find_messages` and `find_offsets` are exact up to the
    end of the log at that moment; the others know what was dispatched.

    Parameters
    ----------
    log, queues, index
        The open parts of the store.
    config
        Limits of pulls and queries.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        queues: ConsumeQueueStore,
        index: LiveIndex,
        config: MessageStoreConfig,
    ) -> None:
        self.config = config
        self._log, self._queues, self._index = log, queues, index
        self._root = queues.directory.uri

    @property
    def min_phy_offset(self) -> int:
        """First byte of the log; -1 when it is empty."""
        return self._log.min_offset

    @property
    def max_phy_offset(self) -> int:
        """End of the readable log, exclusive; 0 when it is empty."""
        return self._log.max_offset

    @contextmanager
    def _reading_queue(
        self, topic: str, queue_id: int
    ) -> Iterator[tuple[ReadableQueue | None, RecordReader]]:
        queue = self._pinned_queue(topic, queue_id)  # before the log, which is then not behind
        with self._reading_log() as reader:
            yield queue, reader

    @contextmanager
    def _reading_log(self) -> Iterator[RecordReader]:
        with PinnedLog(self._log, self._root) as log:
            yield RecordReader(log, log.end_offset, self._root)

    @contextmanager
    def _reading_index(self) -> Iterator[tuple[IndexQueries, RecordReader]]:
        with self._index.pin() as index, self._reading_log() as reader:
            yield index, reader

    @contextmanager
    def _reading_keys(self) -> Iterator[KeySearch]:
        with self._index.pin() as index, PinnedLog(self._log, self._root, whole=True) as log:
            reader = RecordReader(log, log.end_offset, self._root)
            yield KeySearch(_PinnedStore(log, index, self._queues), reader)

    def _pinned_queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        batch = self._queues.find_batch(topic, queue_id)
        if batch is not None:
            per_file = batch.file_size // batch.unit_bytes
            return BatchQueue(batch.read_units(), per_file, self._log.min_offset)
        queue = self._queues.find_simple(topic, queue_id)
        if queue is None:
            return None
        held = QueueRange(queue.min_offset, queue.max_offset)  # in this order: both only grow
        return SimpleQueue(_PinnedUnits(queue), held, lambda: self._ext_queue(topic, queue_id))

    def _ext_queue(self, topic: str, queue_id: int) -> ConsumeQueueExt | None:
        directory = self._queues.directory
        path = directory.resolve(CONSUME_QUEUE_EXT_DIR, topic, str(queue_id))
        size = self.config.mapped_file_size_consume_queue_ext
        return open_consume_queue_ext(directory, path, size)


class _PinnedUnits:
    """Units of a queue below an end; some of the first may expire (see ``UnitFiles``)."""

    def __init__(self, queue: ConsumeQueueWriter) -> None:
        self._queue = queue
        self._units_per_file = queue.file_size // queue.unit_bytes

    def read_units(self, start_queue_offset: int, stop_queue_offset: int) -> Units:
        """Return units; those that have expired meanwhile point nowhere."""
        units = self._queue.read_units(start_queue_offset, stop_queue_offset)
        expired = max(stop_queue_offset - start_queue_offset, 0) - len(units)
        if expired <= 0:
            return units
        gone = np.zeros(expired, NATIVE_CQ_UNIT)
        gone["commit_log_offset"] = -1
        return np.concatenate([gone, units])

    def file_stop(self, queue_offset: int) -> int:
        """Return the end of a file."""
        return self.roll_next_file(queue_offset)

    def roll_next_file(self, queue_offset: int) -> int:
        """Return the first queue offset of the next file."""
        return queue_offset + self._units_per_file - queue_offset % self._units_per_file


class _PinnedStore:
    """What a search by key needs (see ``KeyedStore``)."""

    state = StoreState.LIVE
    checkpoint: StoreCheckpoint | None = None
    topic_configs: Mapping[str, TopicConfig] | None = None

    def __init__(self, log: PinnedLog, index: PinnedIndex, queues: ConsumeQueueStore) -> None:
        self.log, self.index = log, index
        self.min_phy_offset, self.end_offset = log.min_offset, log.end_offset
        self._queues = queues

    @property
    def queue_paths(self) -> list[tuple[str, int]]:
        return [key for key in self._queues.queues() if not self._is_batch(key)]

    @property
    def batch_queue_paths(self) -> list[tuple[str, int]]:
        return [key for key in self._queues.queues() if self._is_batch(key)]

    def store_timestamp_at(self, commit_log_offset: int) -> int | None:
        return self.log.store_timestamp_at(commit_log_offset, self.end_offset)

    def _is_batch(self, key: tuple[str, int]) -> bool:
        return self._queues.find_batch(*key) is not None
