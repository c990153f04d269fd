# SPDX-License-Identifier: Apache-2.0
"""Builds queues and index of a log while it is written, in a separate thread."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.codec.message_batch_codec import MessageColumns
from store_core.index.index_entries import index_entries
from store_core.index.index_writer import IndexWriter
from store_core.layout import INDEX_DIR
from store_core.queue.consume_queue_store import ConsumeQueueStore
from store_core.queue.dispatch_request import DispatchDecoder

if TYPE_CHECKING:
    from concurrent.futures import Future

    import numpy.typing as npt

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig

_MOST_WAITING = 2  # batches, of 32 MiB at most


class DerivedFiles:
    """Writes queue units and index entries of new records; a later call raises their errors.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    warn
        Called with a message about queues that can have no directory.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        is_batch_topic: Callable[[str], bool],
        clock: Callable[[], int],
        warn: Callable[[str], None],
    ) -> None:
        root = config.store_path_root_dir
        self._queues = ConsumeQueueStore(root, config, is_batch_topic=is_batch_topic, warn=warn)
        self._decoder = DispatchDecoder(config.delay_levels_ms)
        self._index: IndexWriter | None = None
        self._with_tags = bool(config.tag_index_enable)
        if config.message_index_enable:
            sizes = config.max_hash_slot_num or 0, config.max_index_num or 0
            self._index = IndexWriter(Path(root, INDEX_DIR), *sizes, clock)
        self._blocks = RecycledBlocks(_MOST_WAITING + 1)
        self._waiting: deque[Future[None]] = deque()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="salvage-dispatch")

    @property
    def flushed_end_timestamp(self) -> int:
        """End time (ms) of the newest full index file, after `finish`; 0 if there is none."""
        return self._index.flushed_end_timestamp if self._index is not None else 0

    def new_block(self, size: int) -> npt.NDArray[np.uint8]:
        """Return a block for the next batch that no waiting batch uses."""
        return self._blocks.next_block(size)

    def dispatch(self, frames: RecordFrames) -> None:
        """Submit the next records in log order; waits if too many batches are not done yet."""
        self._waiting.append(self._pool.submit(self._dispatch, frames))
        while len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for all batches, and flush them to disk.

        Raises
        ------
        StoreWriteError, OSError
            A file cannot be written.
        """
        while self._waiting:
            self._waiting.popleft().result()
        self._queues.flush()
        if self._index is not None:
            self._index.flush()

    def close(self) -> None:
        """Stop the thread; batches not begun are dropped."""
        self._pool.shutdown(cancel_futures=True)
        if self._index is not None:
            self._index.close()

    def _dispatch(self, frames: RecordFrames) -> None:
        self._queues.put(self._decoder.decode(frames).queued())
        if self._index is not None:
            columns = MessageColumns.shared(frames)
            self._index.append(index_entries(columns, with_tags=self._with_tags))


class RecycledBlocks:
    """Hands out ``count`` blocks in turn; at most that many may be in use at a time."""

    def __init__(self, count: int) -> None:
        self._blocks = [np.empty(0, np.uint8)] * count

    def next_block(self, size: int) -> npt.NDArray[np.uint8]:
        """Return a block of ``size`` bytes with arbitrary content."""
        block = self._blocks.pop(0)
        if len(block) < size:
            block = np.empty(size, np.uint8)
        self._blocks.append(block)
        return block[:size]
