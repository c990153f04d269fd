"""What becomes of dispatched records: units of queues, entries of the index.

Source: RocketMQ ``CommitLogDispatcherBuildConsumeQueue``, ``CommitLogDispatcherBuildIndex``
(release 5.3.3).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from store_core.errors import StoreConfigError, StoreWriteError
from store_core.log.live_log import PinnedLog
from store_core.queue.dispatch_request import DispatchDecoder
from store_core.services.service_thread import ServiceThread
from store_core.state.running_flags import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Callable

    from store_core.codec.record_frames import RecordFrames
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.index.index_dispatcher import IndexDispatcher
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.services.store_stats import StoreStatsService
    from store_core.state.checkpoint import CheckpointFile
    from store_core.state.running_flags import RunningFlags

_CATCH_UP_BYTES = 64 << 20
_INTERVAL_MS = 500


class QueueDispatch:
    """Gives the queues their units; while that fails, nothing can be put.

    RocketMQ tries 30 times, then the store refuses puts until it is started again; here it goes on
    when the disk does. On a slave the messages count as put: a master has counted its own.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        config: MessageStoreConfig,
        flags: RunningFlags,
        stats: StoreStatsService,
    ) -> None:
        self._queues, self._flags = queues, flags
        self._stats = stats if config.is_slave else None
        self._decoder = DispatchDecoder(config.delay_levels_ms, queues.filter_bitmaps)

    def __call__(self, frames: RecordFrames) -> None:
        """Dispatch records; see ``ReputMessageService``."""
        try:
            requests = self._decoder.decode(frames)
            self._queues.put(requests.queued())
        except StoreWriteError as err:
            self._flags.set_write_error(RunningFlag.WRITE_LOGICS_QUEUE_ERROR, err)
            raise
        self._flags.clear(RunningFlag.WRITE_LOGICS_QUEUE_ERROR)
        if self._stats is not None:
            self._stats.record_replicated(
                int(requests.batch_size.sum()), int(requests.message_size.sum())
            )


class IndexDispatch:
    """Gives the index its entries; while that fails, nothing can be put."""

    def __init__(self, index: IndexDispatcher, flags: RunningFlags) -> None:
        self._index, self._flags = index, flags

    def __call__(self, frames: RecordFrames) -> None:
        """Dispatch records; `publish` lets them be found. See ``ReputMessageService``."""
        with self._flagged():
            self._index.append(frames)

    def publish(self) -> None:
        """Let what was dispatched be found."""
        with self._flagged():
            self._index.publish()

    @contextmanager
    def _flagged(self) -> Iterator[None]:
        try:
            yield
        except StoreWriteError as err:
            self._flags.set_write_error(RunningFlag.WRITE_INDEX_FILE_ERROR, err)
            raise
        self._flags.clear(RunningFlag.WRITE_INDEX_FILE_ERROR)


class BuildIndexService(ServiceThread):
    """Indexes what the index lacks, and forces its full files to the disk."""

    repeats_while_busy = True

    def __init__(
        self,
        index: IndexDispatcher,
        log: MappedFileQueue,
        root: str,
        dispatched_offset: Callable[[], int],
        checkpoint: CheckpointFile,
        *,
        is_enabled: bool = True,
    ) -> None:
        super().__init__(_INTERVAL_MS)
        self._is_enabled, self._turn = is_enabled, threading.Lock()
        self._index, self._log, self._root = index, log, root
        self._dispatched_offset, self._checkpoint = dispatched_offset, checkpoint

    @property
    def behind_bytes(self) -> int:
        """Bytes that were dispatched and are not in the index."""
        if not self._index.is_behind:
            return 0
        return max(self._dispatched_offset() - self._index.from_offset, 0)

    def run_once(self) -> bool:
        """Index a stretch of the log if some is missing; return whether there is more."""
        with self._turn:
            more = False
            if self._index.is_behind:
                with PinnedLog(self._log, self._root) as log:
                    more = self._index.catch_up(log, self._dispatched_offset(), _CATCH_UP_BYTES)
            self._index.flush_full()
            self._checkpoint.index_msg_timestamp = self._index.flushed_end_timestamp
            return more

    def rebuild(
        self,
        deleted: Callable[[], object] = lambda: None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Delete the index and make it anew, before returning; the store may be in use.

        Queries by key read the log meanwhile.

        Parameters
        ----------
        progress
            Called with the bytes of the log that are done, and all of them.

        Raises
        ------
        StoreConfigError
            ``messageIndexEnable`` is false.
        StoreWriteError, StoreReadError
            A file cannot be written or read; the service goes on with what is missing.
        """
        if not self._is_enabled:
            raise StoreConfigError("messageIndexEnable is false: the store has no index")
        start = max(self._log.min_offset, 0)
        with self._turn:  # else two threads would index the same records
            self._index.begin_anew(start)
            deleted()
            # Now: a crash would leave files that the checkpoint takes for flushed ones.
            self._checkpoint.index_msg_timestamp = self._index.flushed_end_timestamp
            self._checkpoint.flush()
        more = True
        while more:
            more = self.run_once()
            if progress is not None:
                done = max(self._index.from_offset - start, 0)
                # What is put after the last stretch is no part of this.
                progress(done, max(self._dispatched_offset() - start, done) if more else done)

    def finish(self) -> None:
        """Index all that is missing: a broker that opens the store would leave a gap there."""
        while self.run_once():
            pass
