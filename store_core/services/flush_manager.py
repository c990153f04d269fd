"""Which services force the commit log to the disk, and what an append has to wait for.

Source: RocketMQ ``CommitLog.DefaultFlushManager``, ``CommitLog.getConfirmOffset`` (release 5.3.3).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Protocol

from store_core.config.message_store_config import SLAVE, SYNC_FLUSH
from store_core.results import PutMessageStatus
from store_core.services.flush_services import (
    CommitRealTimeService,
    FlushRealTimeService,
    GroupCommitService,
)

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.services.service_thread import ServiceThread
    from store_core.state.checkpoint_file import CheckpointFile


class Replication(Protocol):
    """What sends the log to other stores."""

    def wakeup(self) -> None:
        """Something was appended. Called with every put: it must not wait."""

    def wait_for(self, next_offset: int, since: float) -> bool:
        """Wait until enough stores have the log up to an offset; False if it is not in time.

        ``since``: when it was appended (``time.monotonic()``); the time counts from there.
        """

    def store_closed(self) -> None:
        """Let those go on who wait: the store is being shut down. It must not wait."""

    def store_pauses(self) -> None:
        """Let those go on who wait: the store is shut down for a while. It must not wait."""

    def store_goes_on(self) -> None:
        """Go on: the store is open again, and its log may be another one. It must not wait."""


class FlushManager:
    """Owns the flush services that the configuration asks for; knows who replicates the log.

    Attributes
    ----------
    replication
        None: no slave can connect.
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
        """The log cannot be written or forced to the disk."""
        commit = self.commit_service
        return self.flush_service.is_failing or (commit is not None and commit.is_failing)

    @property
    def last_error(self) -> Exception | None:
        """What went wrong last."""
        commit = self.commit_service
        if commit is not None and commit.is_failing:
            return commit.last_error
        return self.flush_service.last_error

    def end_replication(self) -> None:
        """Let whoever replicates the log know that the store is being shut down."""
        replication, self.replication = self.replication, None
        if replication is not None:
            replication.store_closed()

    def pause_replication(self) -> Replication | None:
        """Let whoever replicates the log wait while the store is shut down; return who it is."""
        replication, self.replication = self.replication, None
        if replication is not None:
            replication.store_pauses()
        return replication

    def settle(self) -> None:
        """Stop the services; then all of the log is on the disk, unless one of them failed."""
        if self.commit_service is not None:
            self.commit_service.settle()
        self.flush_service.settle()

    def handle(self, next_offset: int, wait: bool) -> PutMessageStatus:
        """Do what the configuration wants after an append.

        Returns
        -------
        PutMessageStatus
            ``FLUSH_SLAVE_TIMEOUT`` if a ``SYNC_MASTER`` has fewer than ``inSyncReplicas`` stores
            that have it, ``slaveTimeout`` after the append; ``FLUSH_DISK_TIMEOUT`` if it is not on
            the disk ``syncFlushTimeout`` after it; else ``PUT_OK``. Both times run at once.
        """
        waits_for_replicas = wait and self._waits_for_replicas
        since = time.monotonic() if waits_for_replicas else 0.0
        replication = self.replication
        if replication is not None:
            replication.wakeup()  # first: slaves get it while the disk is written
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
        """Return the end of what may be dispatched."""
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
