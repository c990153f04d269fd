"""Keeps the checkpoint file up to date.

Source: RocketMQ ``DefaultMessageStore.addScheduleTask``,
``ConsumeQueueStore.FlushConsumeQueueService`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable, Protocol

from store_core.services.service_thread import ServiceThread

if TYPE_CHECKING:
    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.state.checkpoint_file import CheckpointFile

_CHECKPOINT_INTERVAL_MS = 1000


class Flushable(Protocol):
    """Queues."""

    def flush(self, least_pages: int = 0) -> object:
        """Force what waits to the disk, of queues with so many pages."""


class CheckpointService(ServiceThread):
    """Writes the checkpoint each second, its times not later than the clock's."""

    def __init__(self, checkpoint: CheckpointFile, clock: Callable[[], int]) -> None:
        super().__init__(_CHECKPOINT_INTERVAL_MS)
        self._checkpoint, self._clock = checkpoint, clock

    def run_once(self) -> bool:
        """Write it where it changed."""
        self._checkpoint.hold_back(self._clock())
        self._checkpoint.flush()
        return True

    def finish(self) -> None:
        """Write it a last time."""
        self._checkpoint.flush()


class FlushConsumeQueueService(ServiceThread):
    """Forces the queues to the disk every ``flushConsumeQueueThoroughInterval``.

    Those with ``flushConsumeQueueLeastPages`` that wait are every ``flushIntervalConsumeQueue``.
    Only when all are do ``logics_msg_timestamp`` and ``logics_physical_offset`` move. RocketMQ
    moves the first with each dispatch: after a power failure its recovery may begin after units
    that never reached the disk.

    Parameters
    ----------
    queues
        All queues.
    config
        The three settings above.
    checkpoint
        Gets the time, and is written.
    clock
        Milliseconds.
    last_dispatched
        Returns ``ReputMessageService.last_dispatched``.
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
        """Flush what it is time for; return whether that was all queues."""
        now = self._clock()
        # abs: a clock that was set back must not stop it.
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
