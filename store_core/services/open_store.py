# SPDX-License-Identifier: Apache-2.0
"""The parts of a store between load and shutdown: files, services, reads and puts.

Source: RocketMQ ``DefaultMessageStore.start``, ``shutdown`` (release 5.3.3).
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from store_core.errors import StoreConfigError
from store_core.index.index_file_set import LiveIndex
from store_core.layout import CONSUME_QUEUE_DIR
from store_core.log.commit_log_appender import CommitLogAppender
from store_core.log.recent_appends import RecentAppends
from store_core.put.put_checks import Refusal
from store_core.put.put_message import MessagePutter
from store_core.queue.consume_queue_store import QueueOffsetTable
from store_core.read.pinned_store import PinnedStore
from store_core.results import PutMessageStatus
from store_core.services.allocate_mapped_file import AllocateMappedFileService, TransientStorePool
from store_core.services.clean_commit_log import (
    FIRST_CLEAN_DELAY_MS,
    CleanCommitLogService,
    CleanConsumeQueueService,
    CorrectLogicOffsetService,
)
from store_core.services.flush_services import (
    CheckpointService,
    FlushConsumeQueueService,
    FlushManager,
    commit_to,
    flush_to,
    uses_transient_pool,
)
from store_core.services.reput_message import (
    BuildIndexService,
    IndexDispatch,
    QueueDispatch,
    ReputMessageService,
)
from store_core.services.service_thread import ServicesInTurn
from store_core.services.store_stats import StoreStatsService
from store_core.state.running_flags import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.log.commit_log_appender import Buffer
    from store_core.put.timer_rules import TimerRules
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.recovery.store_files import StoreFiles
    from store_core.services.environment import Environment
    from store_core.services.reput_message import Dispatcher
    from store_core.state.running_flags import RunningFlags

    Bytes = npt.NDArray[np.uint8]

IsAwaited = Callable[[str, int], bool]
"""Returns without blocking whether a reader waits for the next message of a topic and queue id."""

_WAIT_S = 0.001
_DELETE_WAIT_S = 5.0
_REASONS = (
    (RunningFlag.DISK_FULL, "the disk of the commit log is too full (diskSpaceWarningLevelRatio): "
     "free space on it; puts are accepted again within cleanResourceInterval"),
    (RunningFlag.LOGIC_DISK_FULL, "the disk of the queues is too full "
     "(diskSpaceWarningLevelRatio): free space on it; puts are accepted again within "
     "cleanResourceInterval"),
    (RunningFlag.FENCED, "the store is fenced: another master has taken over"),
    (RunningFlag.NOT_WRITEABLE, "the store was made not writeable"),
)  # fmt: skip


class OpenStore:
    """A loaded store: its files and services, and the objects that put and read messages.

    Parameters
    ----------
    files
        The store's files, owned and closed by this object.
    store_host
        Host of messages without one; 8 or 20 raw bytes.
    timer_rules
        Rules for timer messages; if None, they are stored unchanged.
    is_awaited
        Returns whether a reader waits for the next message of a queue; if None, none ever does.
    """

    def __init__(
        self,
        files: StoreFiles,
        flags: RunningFlags,
        environment: Environment,
        dispatchers: Sequence[Dispatcher],
        store_host: bytes,
        handle_schedule_message: bool,
        timer_rules: TimerRules | None,
        is_awaited: IsAwaited | None = None,
    ) -> None:
        self.files, self.flags, self.config = files, flags, files.config
        self._is_awaited = is_awaited
        self.is_started = self._was_started = False
        self._environment, self.clock = environment, environment.clock
        self._recent = RecentAppends()
        self._build_services(dispatchers)
        position = files.index
        self.index = LiveIndex(position.path, self.config, lambda: position.from_offset)
        self._appender = CommitLogAppender(files.segments, self.clock)
        self.putter = self._make_putter(store_host, handle_schedule_message, timer_rules)

    def _build_services(self, dispatchers: Sequence[Dispatcher]) -> None:
        files, flags, environment, config = self.files, self.flags, self._environment, self.config
        log, clock = files.segments, environment.clock
        self.pool = _pool(config, log.file_size)
        self.allocate = AllocateMappedFileService(log.file_size, config, self.pool)
        log.allocate = self.allocate.allocate
        self.stats = StoreStatsService(clock)
        self.flush = FlushManager(log, config, files.checkpoint, clock)
        dispatch_index = IndexDispatch(files.index, flags)
        self.reput = ReputMessageService(
            log,
            [QueueDispatch(files.queues, config, flags, self.stats), *dispatchers, dispatch_index],
            self._end_of_dispatch(),
            publish=dispatch_index.publish,
            is_slave=config.is_slave,
            recent=self._recent,
        )
        self.reput.reput_from_offset = files.recovery.log_end
        self.reput.last_dispatched = (files.recovery.last_start, files.recovery.last_timestamp)
        self.build_index = BuildIndexService(
            files.index,
            log,
            files.lock.root,
            lambda: self.reput.reput_from_offset,
            files.checkpoint,
            is_enabled=config.message_index_enable,
        )
        self._queues = _QueuesBehindLog(self.flush_log, files.queues)
        self.flush_queues = FlushConsumeQueueService(
            self._queues, config, files.checkpoint, clock, lambda: self.reput.last_dispatched
        )
        self.checkpoint = CheckpointService(files.checkpoint, clock)
        self.clean_commit_log = CleanCommitLogService(
            log,
            config,
            flags,
            clock,
            dispatched_offset=self._kept_in_queues,
            queue_directory=str(Path(files.lock.root) / CONSUME_QUEUE_DIR),
            disk_ratio=environment.disk_ratio,
            hour=environment.hour,
        )
        self.correct_logic_offset = CorrectLogicOffsetService(log, files.queues, config, clock)
        self.clean_consume_queue = CleanConsumeQueueService(log, files.queues, files.index, config)
        self._clean = ServicesInTurn(
            [self.clean_commit_log, self.correct_logic_offset, self.clean_consume_queue],
            config.clean_resource_interval,
            first_delay_ms=FIRST_CLEAN_DELAY_MS,
        )

    def pinned(self, *, whole: bool) -> PinnedStore:
        """Return a view of the store as it is now, for one query."""
        files = self.files
        return PinnedStore(files.segments, files.queues, self.index, self.config, whole=whole)

    def start(self) -> None:
        """Start the services; a second call does nothing."""
        if not self.is_started:
            self._was_started = True
            for service in (
                *(self.allocate, self.flush, self.reput, self.build_index, self.flush_queues),
                *(self.checkpoint, self.stats, self._clean),
            ):
                service.start()
            self.is_started = True

    def shutdown(self) -> bool:
        """Stop everything; return whether all is flushed and dispatched, and ``abort`` removed."""
        self._stop()
        log = self.files.segments
        if self.config.is_slave and not self.is_failing:
            self._cut_unfinished_record()
        clean = (
            log.flushed_where >= log.max_wrote_offset
            and self.dispatch_behind_bytes == 0
            and not self.is_failing
        )
        self.files.close(clean=clean)
        return clean

    def destroy(self) -> None:
        """Stop everything and delete the files."""
        self._stop()
        self.files.destroy()

    @property
    def dispatch_behind_bytes(self) -> int:
        """Number of bytes that may be dispatched but are not yet in queues and index."""
        return max(self.reput.behind_bytes, self.build_index.behind_bytes)

    @property
    def is_failing(self) -> bool:
        """Whether the last attempt to write the log, queues, index or checkpoint failed."""
        services = (self.reput, self.build_index, self.flush_queues, self.checkpoint)
        return self.flush.is_failing or any(service.is_failing for service in services)

    def flush_log(self) -> int:
        """Force the log to the disk up to its present end; return the flushed offset.

        Raises
        ------
        StoreWriteError
            The log cannot be written or forced.
        """
        log = self.files.segments
        end = log.max_wrote_offset
        commit_to(log, end)
        flush_to(log, end)
        return log.flushed_where

    def wait_for_dispatch(self, timeout_s: float) -> bool:
        """Wait until everything appended before the call is dispatched; False after the timeout.

        If part of the log must be written or forced before its dispatch, that is done first.
        """
        end = self.files.segments.max_wrote_offset
        if self.flush.confirm_offset() < end:
            self.flush_log()
        reput, build = self.reput, self.build_index
        deadline = time.monotonic() + timeout_s
        while reput.reput_from_offset < end or build.behind_bytes > 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(_WAIT_S)
        return True

    def wait_for_queues(self, timeout_s: float) -> bool:
        """Wait until the queues have all that may be dispatched now; False after the timeout.

        That includes every acknowledged message. The index may still lack some.
        """
        reput = self.reput
        end = min(self.files.segments.max_wrote_offset, self.flush.confirm_offset())
        deadline = time.monotonic() + timeout_s
        while reput.reput_from_offset < end:
            if time.monotonic() > deadline:
                return False
            reput.wakeup()
            time.sleep(_WAIT_S)
        return True

    def delete_topic(self, topic: str) -> bool:
        """Delete the queues of a topic; its next message has queue offset 0."""
        is_dispatched = self.wait_for_dispatch(_DELETE_WAIT_S)  # most of it, while others put
        with self._queue_offsets.all_locks():
            # A record with an old offset must not get into a queue that restarts at 0: the queue
            # would begin at that offset, and all later records would be taken for repetitions.
            if is_dispatched:
                self.wait_for_dispatch(_DELETE_WAIT_S)
            self._queue_offsets.remove(topic)
            return self.files.queues.delete_topic(topic)

    def rebuild_index(self, progress: Callable[[int, int], None] | None) -> None:
        """Delete the index and rebuild it from the log."""
        self.build_index.rebuild(self.index.forget, progress)

    def runtime_info(self) -> dict[str, str]:
        """Return counters, rates, offsets and disk usage, with RocketMQ's keys."""
        log, ratio = self.files.segments, self._environment.disk_ratio
        ratios = {path: ratio(path) for path in log.directories}
        queues = str(Path(self.files.lock.root) / CONSUME_QUEUE_DIR)
        return {
            **self.stats.runtime_info(),
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.max_offset),
            **{f"commitLogDiskRatio_{path}": str(found) for path, found in ratios.items()},
            "commitLogDiskRatio": str(min(ratios.values())),
            "consumeQueueDiskRatio": str(ratio(queues)),
        }

    @property
    def lock_time_ms(self) -> int:
        """Duration of the current append in ms; 0 if there is none."""
        since = self._appender.begin_time_in_lock
        return max(self.clock() - since, 0) if since else 0

    @property
    def replicable_offset(self) -> int:
        """Offset up to which slaves may have the log: excludes a blank record that ends it.

        After a crash such a blank record is cut, and another record may take its place; a slave
        with the blank record would count as having the new one.
        """
        log = self.files.segments
        end = log.max_offset
        closed = None if end % log.file_size else log.find(end - 1)
        return end if closed is None else closed.file_from_offset + closed.closed_at

    def append_data(self, offset: int, data: Buffer) -> None:
        """Append bytes of the master's log; see ``CommitLogAppender.append_data``."""
        if not self.files.segments.mapped_files:
            self.reput.reput_from_offset = offset
        self._appender.append_data(offset, data)

    @contextmanager
    def log_data(self, offset: int, most: int) -> Iterator[Bytes | None]:
        """Lend up to ``most`` readable bytes of the log from an offset on, within one segment.

        None if there are none: after the end, or in a deleted segment.
        """
        file = self.files.segments.find(offset)
        if file is None:
            yield None
            return
        at = offset - file.file_from_offset
        length = min(file.readable_position - at, most)
        if length <= 0:
            yield None
            return
        with file.select(at, length) as data:
            yield data

    def _cut_unfinished_record(self) -> None:
        """Erase a record that the master has not sent completely: it will be sent again."""
        end = self.reput.reput_from_offset
        if end < self.files.segments.max_wrote_offset:
            self.files.segments.truncate_dirty_files(end)

    def _stop(self) -> None:
        """Refuse appends, then stop each service after those that give it work.

        Unless a service failed, log and queues are then flushed, all records are dispatched, and
        the checkpoint is written; also if the services were never started.
        """
        self.is_started = False
        self._appender.close()
        self.flush.end_replication()
        self._clean.shutdown()
        self.stats.shutdown()
        self.flush.shutdown_or_finish()
        self.reput.shutdown_or_finish()
        self.build_index.shutdown_or_finish()
        self.flush_queues.shutdown_or_finish()
        self.allocate.shutdown_or_finish()
        self._confirm_last_record()
        self.checkpoint.shutdown_or_finish()
        if self.pool is not None:
            self.pool.close()
        self.index.close()

    def _confirm_last_record(self) -> None:
        """Confirm the last record in the checkpoint, so that its loss would be detected.

        RocketMQ confirms only the last record that recovery accepted.
        """
        is_forced = self.files.segments.flushed_where >= self.reput.reput_from_offset
        if is_forced and not self.is_failing and self.reput.dispatched_start >= 0:
            self.files.checkpoint.confirm_phy_offset = self.reput.dispatched_start

    def _end_of_dispatch(self) -> Callable[[], int]:
        if self.config.read_un_committed:
            return lambda: self.files.segments.max_offset
        return self.flush.confirm_offset

    def _kept_in_queues(self) -> int:
        """Force the queues to the disk; return the offset up to which they have the log.

        Deleting a segment earlier would delete the queues' only source: after a power failure they
        would go on with other queue offsets than their messages have.
        """
        offset = self.reput.reput_from_offset
        self._queues.flush()
        return offset

    def _make_putter(
        self, store_host: bytes, handle_schedule_message: bool, timer_rules: TimerRules | None
    ) -> MessagePutter:
        queues = self.files.queues
        self._queue_offsets = offsets = QueueOffsetTable(self.config.topic_queue_lock_num)
        offsets.set_all(*queues.next_queue_offsets())
        return MessagePutter(
            self.config,
            self._appender,
            offsets,
            self.flush,
            store_host=store_host,
            refusal=self._refusal,
            is_batch_topic=queues.is_batch_topic,
            stats=self.stats,
            clock=self.clock,
            handle_schedule_message=handle_schedule_message,
            timer_rules=timer_rules,
            note_put=None if self._is_awaited is None else self._note_put,
            recent=self._recent,
        )

    def _note_put(self, topic: str, queue_id: int) -> None:
        if self._is_awaited is not None and self._is_awaited(topic, queue_id):
            self.reput.wakeup()

    def _refusal(self) -> Refusal | None:
        """Return why nothing can be put now; called with every put."""
        if (
            self.is_started
            and self.flags.is_writeable
            and not self.config.is_slave
            and not self.flush.is_failing
        ):
            return None
        return Refusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, self._reason())

    def _reason(self) -> str:
        flags = self.flags.flags
        if not self.is_started:
            return "the store was shut down" if self._was_started else "start() the store first"
        if self.config.is_slave:
            return "brokerRole is SLAVE: messages come from the master only"
        if self.flags.gone:
            return self.flags.gone
        for flag, reason in _REASONS:
            if flag in flags:
                return reason
        if self.flush.is_failing:
            return (
                f"the log cannot be forced to the disk: {self.flush.last_error}; if this does not "
                "end when the disk works again, shut the store down and start it again"
            )
        return (
            "queues or index cannot be written; puts are accepted again when they can: "
            f"{self.flags.write_error}"
        )


class _QueuesBehindLog:
    """Flushes queues only after the log, so that no unit on the disk is ahead of its record.

    RocketMQ flushes queues independently: with ``ASYNC_FLUSH`` a power failure can leave units of
    lost records.
    """

    def __init__(self, flush_log: Callable[[], object], queues: ConsumeQueueStore) -> None:
        self._flush_log, self._queues = flush_log, queues

    def flush(self, least_pages: int = 0) -> None:
        # The log has its own flush intervals: it is forced early only if a queue needs a flush.
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
