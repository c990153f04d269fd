"""All services of a running store: what they work on, and the order in which they stop.

Source: RocketMQ ``DefaultMessageStore.start``, ``shutdown`` (release 5.3.3).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from store_core.files.transient_store_pool import TransientStorePool
from store_core.services.allocate_mapped_file import AllocateMappedFileService
from store_core.services.checkpoint_service import CheckpointService, FlushConsumeQueueService
from store_core.services.clean_commit_log import (
    FIRST_CLEAN_DELAY_MS,
    CleanCommitLogService,
    local_hour,
)
from store_core.services.clean_consume_queue import (
    CleanConsumeQueueService,
    CorrectLogicOffsetService,
)
from store_core.services.disk_space import disk_ratio
from store_core.services.dispatchers import BuildIndexService, IndexDispatch, QueueDispatch
from store_core.services.flush_manager import FlushManager, uses_transient_pool
from store_core.services.reput_message import ReputMessageService
from store_core.services.service_thread import ServicesInTurn
from store_core.services.store_stats import StoreStatsService

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.running_flags import RunningFlags
    from store_core.services.reput_message import Dispatcher
    from store_core.store_parts import StoreParts


@dataclass(frozen=True)
class Surroundings:
    """What the services see of the machine.

    Attributes
    ----------
    clock
        Returns ms since the epoch.
    disk_ratio
        Returns the used share (0 to 1) of the disk below a directory; -1 if unknown.
    hour
        Returns the hour of the day at a time of the clock.
    """

    clock: Callable[[], int]
    disk_ratio: Callable[[str], float] = disk_ratio
    hour: Callable[[int], int] = local_hour


class StoreServices:
    """Built when the store is loaded, started and shut down with it.

    Parameters
    ----------
    parts
        The open store.
    flags
        What keeps it from being written.
    surroundings
        Clock and disks.
    dispatchers
        Called with all dispatched records after queues and index.
    """

    def __init__(
        self,
        parts: StoreParts,
        flags: RunningFlags,
        surroundings: Surroundings,
        dispatchers: Sequence[Dispatcher],
    ) -> None:
        config, log, clock = parts.config, parts.segments, surroundings.clock
        root = parts.lock.root
        self.pool = None
        if uses_transient_pool(config):
            self.pool = TransientStorePool(config.transient_store_pool_size, log.file_size)
        self.allocate = AllocateMappedFileService(log.file_size, config, self.pool)
        log.allocate = self.allocate.take
        self.stats = StoreStatsService(clock)
        self.flush = FlushManager(log, config, parts.checkpoint, clock)
        self.reput = ReputMessageService(
            log,
            [
                QueueDispatch(parts.queues, config, flags),
                IndexDispatch(parts.index, flags),
                *dispatchers,
            ],
            self._end_of_dispatch(parts),
        )
        self.reput.reput_from_offset = parts.recovery.log_end
        self.reput.dispatched_timestamp = parts.recovery.last_timestamp
        self.build_index = BuildIndexService(
            parts.index, log, root, lambda: self.reput.reput_from_offset, parts.checkpoint
        )
        self.flush_queues = FlushConsumeQueueService(
            parts.queues, config, parts.checkpoint, clock, lambda: self.reput.dispatched_timestamp
        )
        self.checkpoint = CheckpointService(parts.checkpoint)
        self.clean_commit_log = CleanCommitLogService(
            log,
            config,
            flags,
            clock,
            dispatched_offset=lambda: self.reput.reput_from_offset,
            queue_directory=os.path.join(root, "consumequeue"),
            disk_ratio=surroundings.disk_ratio,
            hour=surroundings.hour,
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

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes of the log that are not yet in queues and index."""
        return max(self.reput.behind_bytes, self.build_index.behind_bytes)

    def start(self) -> None:
        """Start all of them."""
        self.allocate.start()
        self.reput.start()
        self.build_index.start()
        self.flush.start()
        self.flush_queues.start()
        self.checkpoint.start()
        self.stats.start()
        self._clean.start()

    def shutdown(self) -> None:
        """Stop all of them, each after those that give it work.

        Then the log is flushed and dispatched, queues are flushed, the checkpoint says so; unless
        one of them failed.
        """
        self._clean.shutdown()
        self.stats.shutdown()
        self.flush.shutdown()
        self.reput.shutdown()
        self.build_index.shutdown()
        self.flush_queues.shutdown()
        self.allocate.shutdown()
        self.checkpoint.shutdown()
        if self.pool is not None:
            self.pool.close()
