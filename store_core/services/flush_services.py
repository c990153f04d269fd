# SPDX-License-Identifier: Apache-2.0
"""Services that write and force the commit log to the disk.

Source: RocketMQ ``CommitLog.FlushRealTimeService``, ``GroupCommitService``,
``CommitRealTimeService`` (release 5.3.3).
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Callable, NamedTuple, Protocol

from store_core.config.message_store_config import SLAVE, SYNC_FLUSH
from store_core.errors import StoreWriteError
from store_core.results import PutMessageStatus
from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.state.checkpoint import CheckpointFile

_GROUP_COMMIT_INTERVAL_MS = 10
_LINGER_SHARE = 0.25
_MAX_LINGER_S = 0.002
_ALL = sys.maxsize
_CHECKPOINT_INTERVAL_MS = 1000


def commit_to(queue: MappedFileQueue, offset: int, least_pages: int = 0) -> bool:
    """Write the log to its files up to an offset; return whether anything was written."""
    moved = False
    while queue.committed_where < offset and not queue.commit(least_pages):
        moved = True
    return moved


def flush_to(queue: MappedFileQueue, offset: int, least_pages: int = 0) -> bool:
    """Force the log to the disk up to an offset; return whether anything was forced."""
    moved = False
    while queue.flushed_where < offset and not queue.flush(least_pages):
        moved = True
    return moved


class FlushRealTimeService(ServiceThread):
    """Forces the log periodically (``ASYNC_FLUSH``).

    Every ``flushIntervalCommitLog`` if ``flushCommitLogLeastPages`` are waiting, and any number of
    pages every ``flushCommitLogThoroughInterval``.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        config: MessageStoreConfig,
        checkpoint: CheckpointFile,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(
            config.flush_interval_commit_log, wakeable=not config.flush_commit_log_timed
        )
        self._queue, self._checkpoint, self._clock = queue, checkpoint, clock
        self._least_pages = config.flush_commit_log_least_pages
        self._thorough_interval_ms = config.flush_commit_log_thorough_interval
        self._thorough_at = 0

    def run_once(self) -> bool:
        """Force the log if enough pages wait or it is time; return whether anything was forced."""
        now, least_pages = self._clock(), self._least_pages
        # abs: a clock that was set back must not stop thorough flushes.
        if abs(now - self._thorough_at) >= self._thorough_interval_ms:
            self._thorough_at, least_pages = now, 0
        return self._flush(least_pages)

    def finish(self) -> None:
        """Force everything."""
        self._flush(0)

    def _flush(self, least_pages: int) -> bool:
        moved = flush_to(self._queue, self._queue.max_wrote_offset, least_pages)
        note_flushed(self._queue, self._checkpoint)
        return moved


class _Waiter(NamedTuple):
    """A thread that waits for an offset on a lock, which the flushing thread releases."""

    offset: int
    is_waiting: threading.Lock


class GroupCommitService(ServiceThread):
    """Forces the log when a thread waits for it (``SYNC_FLUSH``).

    Everything appended before a flush begins shares that flush. Threads released together append
    again at nearly the same time, so a flush first waits for as many as the last one released, at
    most a quarter of a flush's duration and at most 2 ms. With eight threads that doubles the
    throughput, as one flush then serves seven instead of fewer than four.
    """

    def __init__(self, queue: MappedFileQueue, checkpoint: CheckpointFile) -> None:
        super().__init__(_GROUP_COMMIT_INTERVAL_MS)
        self._queue, self._checkpoint = queue, checkpoint
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._expected = 0
        self._all_wait = threading.Event()
        self._flush_s = 0.0

    def wait_for(self, offset: int, timeout_ms: int) -> bool:
        """Wait until the log is on the disk up to an offset; False after the timeout.

        False immediately if forcing it fails. If the service is not started, the caller forces it.
        """
        if not self.is_running:
            self._guarded(self.run_once)
            return self._queue.flushed_where >= offset
        waiter = _Waiter(offset, threading.Lock())
        waiter.is_waiting.acquire()
        with self._lock:
            self._waiters.append(waiter)
            if len(self._waiters) >= self._expected:
                self._all_wait.set()
        self.wakeup()
        if not waiter.is_waiting.acquire(timeout=timeout_ms / 1000):
            with self._lock:
                self._waiters = [other for other in self._waiters if other is not waiter]
        return self._queue.flushed_where >= offset

    def run_once(self) -> bool:
        """Force everything appended so far; return whether anything was forced."""
        if self._queue.flushed_where >= self._queue.max_wrote_offset:
            self._release(self._queue.flushed_where)
            return False
        self._wait_for_others()
        begin = time.perf_counter()
        try:
            end = self._queue.max_wrote_offset
            commit_to(self._queue, end)
            flush_to(self._queue, end)
        except StoreWriteError:
            self._release(_ALL)
            raise
        self._flush_s = time.perf_counter() - begin
        self._expected = len(self._waiters)
        self._release(self._queue.flushed_where)
        note_flushed(self._queue, self._checkpoint)
        return True

    def _release(self, offset: int) -> None:
        """Release the threads that wait for this offset or a smaller one."""
        with self._lock:
            waiters, self._waiters = self._waiters, []
            self._all_wait.clear()
            for waiter in waiters:
                if waiter.offset <= offset:
                    waiter.is_waiting.release()
                else:
                    self._waiters.append(waiter)

    def _wait_for_others(self) -> None:
        if 0 < len(self._waiters) < self._expected:
            self._all_wait.wait(min(self._flush_s * _LINGER_SHARE, _MAX_LINGER_S))

    def finish(self) -> None:
        """Force everything."""
        self.run_once()


class CommitRealTimeService(ServiceThread):
    """Writes the buffers of the transient store pool to the files."""

    def __init__(
        self,
        queue: MappedFileQueue,
        config: MessageStoreConfig,
        clock: Callable[[], int],
        flush: ServiceThread,
    ) -> None:
        super().__init__(config.commit_interval_commit_log)
        self._queue, self._clock, self._flush = queue, clock, flush
        self._least_pages = config.commit_commit_log_least_pages
        self._thorough_interval_ms = config.commit_commit_log_thorough_interval
        self._thorough_at = 0

    def run_once(self) -> bool:
        """Write if enough pages wait or it is time; return whether anything was written."""
        now, least_pages = self._clock(), self._least_pages
        if abs(now - self._thorough_at) >= self._thorough_interval_ms:
            self._thorough_at, least_pages = now, 0
        moved = commit_to(self._queue, self._queue.max_wrote_offset, least_pages)
        if moved:
            self._thorough_at = now
            self._flush.wakeup()
        return moved

    def finish(self) -> None:
        """Write everything."""
        commit_to(self._queue, self._queue.max_wrote_offset)


def note_flushed(queue: MappedFileQueue, checkpoint: CheckpointFile) -> None:
    """Set the checkpoint's store time up to which the log is on the disk."""
    if queue.store_timestamp > 0:
        checkpoint.physic_msg_timestamp = queue.store_timestamp


# Source: RocketMQ ``DefaultMessageStore.addScheduleTask``,
# ``ConsumeQueueStore.FlushConsumeQueueService`` (release 5.3.3).
class Flushable(Protocol):
    """Queues that can be flushed."""

    def flush(self, least_pages: int = 0) -> object:
        """Force queues with at least so many waiting pages to the disk."""


class CheckpointService(ServiceThread):
    """Writes the checkpoint every second, with no time later than the clock's."""

    def __init__(self, checkpoint: CheckpointFile, clock: Callable[[], int]) -> None:
        super().__init__(_CHECKPOINT_INTERVAL_MS)
        self._checkpoint, self._clock = checkpoint, clock

    def run_once(self) -> bool:
        """Write the checkpoint if it changed."""
        self._checkpoint.hold_back(self._clock())
        self._checkpoint.flush()
        return True

    def finish(self) -> None:
        """Write the checkpoint a last time."""
        self._checkpoint.flush()


class FlushConsumeQueueService(ServiceThread):
    """Forces all queues to the disk every ``flushConsumeQueueThoroughInterval``.

    Queues with ``flushConsumeQueueLeastPages`` waiting are forced every
    ``flushIntervalConsumeQueue``. ``logics_msg_timestamp`` and ``logics_physical_offset`` move only
    when all queues were forced. RocketMQ moves the first with each dispatch: after a power failure
    its recovery may begin after units that never reached the disk.
    """

    def __init__(
        self,
        queues: Flushable,
        config: MessageStoreConfig,
        checkpoint: CheckpointFile,
        clock: Callable[[], int],
        last_dispatched: Callable[[], tuple[int, int]],
    ) -> None:
        super().__init__(config.flush_interval_consume_queue)
        self._queues, self._checkpoint, self._clock = queues, checkpoint, clock
        self._last_dispatched = last_dispatched
        self._least_pages = config.flush_consume_queue_least_pages
        self._thorough_interval_ms = config.flush_consume_queue_thorough_interval
        self._flushed_at = clock()

    def run_once(self) -> bool:
        """Flush the queues that are due; return whether all were flushed."""
        now = self._clock()
        # abs: a clock that was set back must not stop thorough flushes.
        is_early = abs(now - self._flushed_at) < self._thorough_interval_ms
        if is_early and self._least_pages:
            self._queues.flush(self._least_pages)
            return False
        self._flush()
        self._flushed_at = now
        return True

    def finish(self) -> None:
        """Flush the queues."""
        self._flush()

    def _flush(self) -> None:
        last = self._last_dispatched()  # before: dispatch goes on meanwhile
        self._queues.flush()
        self._checkpoint.set_dispatched(*last)
        self._checkpoint.hold_back(self._clock())
        self._checkpoint.flush()


# Source: RocketMQ ``CommitLog.DefaultFlushManager``, ``CommitLog.getConfirmOffset`` (release
# 5.3.3).
class Replication(Protocol):
    """Sends the log to other stores."""

    def wakeup(self) -> None:
        """Note that something was appended. Called with every put; must not block."""

    def wait_for(self, next_offset: int, since: float) -> bool:
        """Wait until enough stores have the log up to an offset; False after the timeout.

        The timeout counts from ``since``, when the log was appended (``time.monotonic()``).
        """

    def store_closed(self) -> None:
        """Release waiting threads: the store is being shut down. Must not block."""

    def store_pauses(self) -> None:
        """Release waiting threads: the store is shut down for a while. Must not block."""

    def store_goes_on(self) -> None:
        """Go on: the store is open again, perhaps with another log. Must not block."""


class FlushManager:
    """Owns the flush services of the configuration, and the replication of the log.

    Attributes
    ----------
    replication
        None if no slave can connect.
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        config: MessageStoreConfig,
        checkpoint: CheckpointFile,
        clock: Callable[[], int],
    ) -> None:
        self._queue, self._config = queue, config
        self.replication: Replication | None = None
        self._waits_for_replicas = config.waits_for_replicas
        self.group_commit: GroupCommitService | None = None
        self.commit_service: CommitRealTimeService | None = None
        if config.flush_disk_type == SYNC_FLUSH:
            self.group_commit = GroupCommitService(queue, checkpoint)
            self.flush_service: ServiceThread = self.group_commit
        else:
            self.flush_service = FlushRealTimeService(queue, config, checkpoint, clock)
        if uses_transient_pool(config):
            self.commit_service = CommitRealTimeService(queue, config, clock, self.flush_service)
        self._woken = self._service_to_wake()

    def start(self) -> None:
        """Start the services."""
        self.flush_service.start()
        if self.commit_service is not None:
            self.commit_service.start()

    @property
    def is_failing(self) -> bool:
        """Whether the log cannot be written or forced to the disk."""
        commit = self.commit_service
        return self.flush_service.is_failing or (commit is not None and commit.is_failing)

    @property
    def last_error(self) -> Exception | None:
        """The error of the last failed run."""
        commit = self.commit_service
        if commit is not None and commit.is_failing:
            return commit.last_error
        return self.flush_service.last_error

    def end_replication(self) -> None:
        """Detach the replication, and inform it that the store is being shut down."""
        replication, self.replication = self.replication, None
        if replication is not None:
            replication.store_closed()

    def pause_replication(self) -> Replication | None:
        """Detach and return the replication, which pauses while the store is shut down."""
        replication, self.replication = self.replication, None
        if replication is not None:
            replication.store_pauses()
        return replication

    def shutdown_or_finish(self) -> None:
        """Stop the services; all of the log is on the disk then, unless one of them failed."""
        if self.commit_service is not None:
            self.commit_service.shutdown_or_finish()
        self.flush_service.shutdown_or_finish()

    def handle(self, next_offset: int, wait: bool) -> PutMessageStatus:
        """After an append, flush and replicate as configured; return the status."""
        waits_for_replicas = wait and self._waits_for_replicas
        since = time.monotonic() if waits_for_replicas else 0.0
        replication = self.replication
        if replication is not None:
            replication.wakeup()  # first: slaves get the data while the disk is written
        status = self._flush(next_offset, wait)
        if not waits_for_replicas:
            return status
        if replication is None or not replication.wait_for(next_offset, since):
            return PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        return status

    def _flush(self, next_offset: int, wait: bool) -> PutMessageStatus:
        if self.group_commit is None:
            if self._woken is not None:
                self._woken.wakeup()
        elif not wait:
            self.group_commit.wakeup()
        elif not self.group_commit.wait_for(next_offset, self._config.sync_flush_timeout):
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        return PutMessageStatus.PUT_OK

    def confirm_offset(self) -> int:
        """Return the offset up to which the log may be dispatched."""
        queue = self._queue
        if self.group_commit is None:
            return queue.max_offset
        return min(queue.flushed_where, queue.max_offset)

    def _service_to_wake(self) -> ServiceThread | None:
        if self.commit_service is not None:
            return self.commit_service if self._config.wake_commit_when_put_message else None
        return self.flush_service if self._config.wake_flush_when_put_message else None


def uses_transient_pool(config: MessageStoreConfig) -> bool:
    """Return whether appended bytes wait in memory (``isTransientStorePoolEnable``)."""
    return config.transient_store_pool_enable and config.broker_role != SLAVE
