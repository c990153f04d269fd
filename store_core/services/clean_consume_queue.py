"""What follows a log that became shorter at its beginning: queues and index get shorter too.

Source: RocketMQ ``ConsumeQueueStore.CleanConsumeQueueService``, ``CorrectLogicOffsetService``
(release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Protocol

from store_core.services.clean_commit_log import FIRST_CLEAN_DELAY_MS
from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file_queue import MappedFileQueue


class ExpiringIndex(Protocol):
    """An index."""

    def delete_expired(self, min_phy_offset: int, /) -> object:
        """Delete files that speak of nothing at or after this offset of the log."""


class ExpiringQueues(Protocol):
    """Queues."""

    def queues(self) -> Sequence[tuple[str, int]]:
        """Return (topic, queue id) of all."""

    def delete_expired_of(self, key: tuple[str, int], min_phy_offset: int, /) -> int:
        """Delete files of one queue; return how many."""


class Correctable(Protocol):
    """Queues that know their least offsets."""

    def correct_min_offsets(self, min_phy_offset: int, /) -> object:
        """Let queues begin with the first unit that points into the log."""


class CleanConsumeQueueService(ServiceThread):
    """Deletes files of queues and index when the log's least offset grew.

    It rests for ``deleteConsumeQueueFilesInterval`` after each queue of which files went, so that
    the disk stays free for others.
    """

    def __init__(
        self,
        log: MappedFileQueue,
        queues: ExpiringQueues,
        index: ExpiringIndex,
        config: MessageStoreConfig,
    ) -> None:
        super().__init__(config.clean_resource_interval, first_delay_ms=FIRST_CLEAN_DELAY_MS)
        self._log, self._queues, self._index = log, queues, index
        self._interval_between_queues_ms = config.delete_consume_queue_files_interval
        self._done_offset = 0

    def run_once(self) -> bool:
        """Delete what is to be deleted now; return whether the least offset grew."""
        min_offset = self._log.min_offset
        if min_offset <= self._done_offset:
            return False
        for key in self._queues.queues():
            if self._queues.delete_expired_of(key, min_offset):
                self.pause(self._interval_between_queues_ms)
        self._index.delete_expired(min_offset)
        self._done_offset = min_offset
        return True


class CorrectLogicOffsetService(ServiceThread):
    """Corrects the least offsets of queues when the log's grew, and every five minutes anyway."""

    def __init__(
        self,
        log: MappedFileQueue,
        queues: Correctable,
        config: MessageStoreConfig,
        clock: Callable[[], int],
    ) -> None:
        super().__init__(config.clean_resource_interval, first_delay_ms=FIRST_CLEAN_DELAY_MS)
        self._log, self._queues, self._clock = log, queues, clock
        self._force_interval_ms = config.correct_logic_min_offset_force_interval
        self._done_offset, self._done_at = 0, clock()

    def run_once(self) -> bool:
        """Correct the queues if it is time; return whether it was."""
        min_offset, now = self._log.min_offset, self._clock()
        is_time = abs(now - self._done_at) >= self._force_interval_ms
        if min_offset < 0 or (min_offset == self._done_offset and not is_time):
            return False
        self._queues.correct_min_offsets(min_offset)
        self._done_offset, self._done_at = min_offset, now
        return True
