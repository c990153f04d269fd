"""All services of a running store: what they work on, and the order in which they stop.

Source: RocketMQ ``DefaultMessageStore.start``, ``shutdown`` (release 5.3.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from store_core.errors import StoreConfigError
from store_core.layout.store_paths import CONSUME_QUEUE_DIR
from store_core.services.allocate_mapped_file import AllocateMappedFileService, TransientStorePool
from store_core.services.clean_commit_log import (
    FIRST_CLEAN_DELAY_MS,
    CleanCommitLogService,
    CleanConsumeQueueService,
    CorrectLogicOffsetService,
    local_hour,
)
from store_core.services.disk_space import disk_ratio
from store_core.services.dispatchers import BuildIndexService, IndexDispatch, QueueDispatch
from store_core.services.flush_services import (
    CheckpointService,
    FlushConsumeQueueService,
    FlushManager,
    commit_to,
    flush_to,
    uses_transient_pool,
)
from store_core.services.reput_message import ReputMessageService
from store_core.services.service_thread import ServicesInTurn
from store_core.services.store_stats import StoreStatsService

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.services.reput_message import Dispatcher
    from store_core.state.running_flags import RunningFlags
    from store_core.store_files import StoreParts


@dataclass(frozen=True)
class Environment:
    """What the services see of the machine.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    disk_ratio
        Returns the used share (0 to 1) of the disk below a directory; -1 if unknown.
    """

    clock: Callable[[], int]
    disk_ratio: Callable[[str], float] = disk_ratio
    hour: Callable[[int], int] = local_hour


class StoreServices:
    """Built when the store is loaded, started and shut down with it."""

    def __init__(
        self,
        parts: StoreParts,
        flags: RunningFlags,
        environment: Environment,
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        config, log, clock = parts.config, parts.segments, environment.clock
        root, self._log, self._checkpoint = parts.lock.root, log, parts.checkpoint
        self.pool = _pool(config, log.file_size)
        self.allocate = AllocateMappedFileService(log.file_size, config, self.pool)
        log.allocate = self.allocate.allocate
        self.stats = StoreStatsService(clock)
        self.flush = FlushManager(log, config, parts.checkpoint, clock)
        index = IndexDispatch(parts.index, flags)
        self.reput = ReputMessageService(
            log,
            [QueueDispatch(parts.queues, config, flags, self.stats), *dispatchers, index],
            self._end_of_dispatch(parts),
            publish=index.publish,
            is_slave=config.is_slave,
        )
        self.reput.reput_from_offset = parts.recovery.log_end
        self.reput.last_dispatched = (parts.recovery.last_start, parts.recovery.last_timestamp)
        self.build_index = BuildIndexService(
            parts.index,
            log,
            root,
            lambda: self.reput.reput_from_offset,
            parts.checkpoint,
            is_enabled=config.message_index_enable,
        )
        self._queues = _QueuesBehindLog(self.flush_log, parts.queues)
        self.flush_queues = FlushConsumeQueueService(
            self._queues, config, parts.checkpoint, clock, lambda: self.reput.last_dispatched
        )
        self.checkpoint = CheckpointService(parts.checkpoint, clock)
        self.clean_commit_log = CleanCommitLogService(
            log,
            config,
            flags,
            clock,
            dispatched_offset=self._kept_in_queues,
            queue_directory=str(Path(root) / CONSUME_QUEUE_DIR),
            disk_ratio=environment.disk_ratio,
            hour=environment.hour,
        )
        self.correct_logic_offset = CorrectLogicOffsetService(log, parts.queues, config, clock)
        self.clean_consume_queue = CleanConsumeQueueService(log, parts.queues, parts.index, config)
        self._clean = ServicesInTurn(
            [self.clean_commit_log, self.correct_logic_offset, self.clean_consume_queue],
            config.clean_resource_interval,
            first_delay_ms=FIRST_CLEAN_DELAY_MS,
        )

    def _end_of_dispatch(self, parts: StoreParts) -> Callable[[], int]:
        if parts.config.read_un_committed:
            return lambda: parts.segments.max_offset
        return self.flush.confirm_offset

    def _kept_in_queues(self) -> int:
        """Return up to where dispatch got, when all of that is in the queues' files on the disk.

        A segment that is deleted before takes the queues' only source with it: after a loss of
        power they would go on with other queue offsets than their messages have.
        """
        offset = self.reput.reput_from_offset
        self._queues.flush()
        return offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that may be dispatched and are not yet in queues and index."""
        return max(self.reput.behind_bytes, self.build_index.behind_bytes)

    @property
    def is_failing(self) -> bool:
        """Something is not on the disk, because it could not be written last time."""
        services = (self.reput, self.build_index, self.flush_queues, self.checkpoint)
        return self.flush.is_failing or any(service.is_failing for service in services)

    def start(self) -> None:
        """Start all of them."""
        self.allocate.start()
        self.flush.start()
        self.reput.start()
        self.build_index.start()
        self.flush_queues.start()
        self.checkpoint.start()
        self.stats.start()
        self._clean.start()

    def flush_log(self) -> int:
        """Force the log to the disk, up to its end as it is now; return up to where it is.

        Raises
        ------
        StoreWriteError
            It cannot be.
        """
        end = self._log.max_wrote_offset
        commit_to(self._log, end)
        flush_to(self._log, end)
        return self._log.flushed_where

    def shutdown(self) -> None:
        """Stop all of them, each after those that give it work; nothing must be appended any more.

        Then the log is flushed and dispatched, queues are flushed, the checkpoint says so; unless
        one of them failed. That is done for services that were never started, too.
        """
        self._clean.shutdown()
        self.stats.shutdown()
        self.flush.settle()
        self.reput.settle()
        self.build_index.settle()
        self.flush_queues.settle()
        self.allocate.settle()
        self._confirm_last_record()
        self.checkpoint.settle()
        if self.pool is not None:
            self.pool.close()

    def _confirm_last_record(self) -> None:
        """Let the checkpoint name the last record, so that its loss would be seen.

        RocketMQ notes only the last one that a recovery found.
        """
        is_forced = self._log.flushed_where >= self.reput.reput_from_offset
        if is_forced and not self.is_failing and self.reput.dispatched_start >= 0:
            self._checkpoint.confirm_phy_offset = self.reput.dispatched_start


class _QueuesBehindLog:
    """Queues of which the disk never has more than of the log.

    RocketMQ flushes them whenever it is time: with ``ASYNC_FLUSH`` a loss of power can leave units
    of records that are gone.
    """

    def __init__(self, flush_log: Callable[[], object], queues: ConsumeQueueStore) -> None:
        self._flush_log, self._queues = flush_log, queues

    def flush(self, least_pages: int = 0) -> None:
        # The log has intervals of its own: it is forced early for queues that need it only.
        if least_pages and not self._queues.is_worth_flush(least_pages):
            return
        self._flush_log()
        self._queues.flush(least_pages)


def _pool(config: MessageStoreConfig, file_size: int) -> TransientStorePool | None:
    if not uses_transient_pool(config):
        return None
    size = config.transient_store_pool_size
    try:
        return TransientStorePool(size, file_size)
    except (OSError, MemoryError) as err:
        raise StoreConfigError(
            f"transientStorePoolSize={size}: there is no memory for {size} buffers of "
            f"{file_size} bytes ({err})"
        ) from err
