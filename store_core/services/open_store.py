"""What there is of a store between load and shutdown: its files, services, reads and puts."""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from store_core.index.live_index import LiveIndex
from store_core.layout.store_paths import CONSUME_QUEUE_DIR
from store_core.log.commit_log_appender import CommitLogAppender
from store_core.put.put_checks import Refusal
from store_core.put.put_message import MessagePutter
from store_core.queue.queue_offset_table import QueueOffsetTable
from store_core.read.pinned_store import PinnedStore
from store_core.results import PutMessageStatus
from store_core.services.store_services import StoreServices
from store_core.state.running_flags import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from store_core.log.commit_log_appender import Buffer
    from store_core.put.timer_rules import TimerRules
    from store_core.services.reput_message import Dispatcher
    from store_core.services.store_services import Environment
    from store_core.state.running_flags import RunningFlags
    from store_core.store_files import StoreParts

    Bytes = npt.NDArray[np.uint8]

IsAwaited = Callable[[str, int], bool]
"""Takes topic and queue id, returns whether somebody waits for the next message there; at once."""

_WAIT_S = 0.001
_DELETE_WAIT_S = 5.0
_REASONS = (
    (RunningFlag.DISK_FULL, "the disk of the commit log is too full (diskSpaceWarningLevelRatio): "
     "free space on it; puts go on within cleanResourceInterval"),
    (RunningFlag.LOGIC_DISK_FULL, "the disk of the queues is too full "
     "(diskSpaceWarningLevelRatio): free space on it; puts go on within cleanResourceInterval"),
    (RunningFlag.FENCED, "the store is fenced: another master has taken over"),
    (RunningFlag.NOT_WRITEABLE, "the store was made not writeable"),
)  # fmt: skip


class OpenStore:
    """The parts of a loaded store, wired.

    Parameters
    ----------
    parts
        Its files; closed here.
    store_host
        8 or 20 raw bytes, of messages without a host of their own.
    timer_rules
        What becomes of timer messages; None: they are stored as they are.
    is_awaited
        Whether somebody waits for the next message of a queue; None: nobody.
    """

    def __init__(
        self,
        parts: StoreParts,
        flags: RunningFlags,
        environment: Environment,
        dispatchers: Sequence[Dispatcher],
        store_host: bytes,
        handle_schedule_message: bool,
        timer_rules: TimerRules | None,
        is_awaited: IsAwaited | None = None,
    ) -> None:
        self.parts, self.flags, self.config = parts, flags, parts.config
        self._is_awaited = is_awaited
        self.is_started = self._was_started = False
        self._environment, self.clock = environment, environment.clock
        self.services = StoreServices(parts, flags, environment, dispatchers)
        position = parts.index
        self.index = LiveIndex(position.path, self.config, lambda: position.from_offset)
        self._appender = CommitLogAppender(parts.segments, self.clock)
        self.putter = self._make_putter(store_host, handle_schedule_message, timer_rules)

    def pinned(self, *, whole: bool) -> PinnedStore:
        """Return the store as it is now, for one query."""
        parts = self.parts
        return PinnedStore(parts.segments, parts.queues, self.index, self.config, whole=whole)

    def start(self) -> None:
        """Start the services; a second call does nothing."""
        if not self.is_started:
            self._was_started = True
            self.services.start()
            self.is_started = True

    def close(self) -> bool:
        """Stop all; return whether all is flushed and dispatched, and so ``abort`` is gone."""
        self._stop()
        log = self.parts.segments
        if self.config.is_slave and not self.services.is_failing:
            self._cut_unfinished_record()
        clean = (
            log.flushed_where >= log.max_wrote_offset
            and self.services.dispatch_behind_bytes == 0
            and not self.services.is_failing
        )
        self.parts.close(clean=clean)
        return clean

    def destroy(self) -> None:
        """Stop all and delete the files."""
        self._stop()
        self.parts.destroy()

    def flush(self) -> int:
        """Force the log to the disk, up to its end as it is now; return up to where it is."""
        return self.services.flush_log()

    def wait_for_dispatch(self, timeout_s: float) -> bool:
        """Wait until what was appended before the call is dispatched; False after the time.

        What may not be dispatched before it is written out, or on the disk, is forced there.
        """
        end = self.parts.segments.max_wrote_offset
        if self.services.flush.confirm_offset() < end:
            self.flush()
        reput, build = self.services.reput, self.services.build_index
        deadline = time.monotonic() + timeout_s
        while reput.reput_from_offset < end or build.behind_bytes > 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(_WAIT_S)
        return True

    def wait_for_queues(self, timeout_s: float) -> bool:
        """Wait until the queues have what may be dispatched of the log now; False after the time.

        That is all that was acknowledged. The index may still lack it.
        """
        reput = self.services.reput
        end = min(self.parts.segments.max_wrote_offset, self.services.flush.confirm_offset())
        deadline = time.monotonic() + timeout_s
        while reput.reput_from_offset < end:
            if time.monotonic() > deadline:
                return False
            reput.wakeup()
            time.sleep(_WAIT_S)
        return True

    def delete_topic(self, topic: str) -> bool:
        """Delete the queues of a topic; its next message has queue offset 0."""
        is_dispatched = self.wait_for_dispatch(_DELETE_WAIT_S)  # the most, while others put
        with self._queue_offsets.all_locks():
            # A record with an old offset must not come to a queue that begins anew at 0: it would
            # begin there instead, and all that follow would be taken for repetitions.
            if is_dispatched:
                self.wait_for_dispatch(_DELETE_WAIT_S)
            self._queue_offsets.remove(topic)
            return self.parts.queues.delete_topic(topic)

    def rebuild_index(self, progress: Callable[[int, int], None] | None) -> None:
        """Delete the index and make it anew from the log."""
        self.services.build_index.rebuild(self.index.forget, progress)

    def runtime_info(self) -> dict[str, str]:
        """Return counters, rates, offsets and disk usage, with RocketMQ's keys."""
        log, ratio = self.parts.segments, self._environment.disk_ratio
        ratios = {path: ratio(path) for path in log.directories}
        queues = str(Path(self.parts.lock.root) / CONSUME_QUEUE_DIR)
        return {
            **self.services.stats.runtime_info(),
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.max_offset),
            **{f"commitLogDiskRatio_{path}": str(found) for path, found in ratios.items()},
            "commitLogDiskRatio": str(min(ratios.values())),
            "consumeQueueDiskRatio": str(ratio(queues)),
        }

    @property
    def lock_time_ms(self) -> int:
        """For how long an append has been going on; 0 while there is none."""
        since = self._appender.begin_time_in_lock
        return max(self.clock() - since, 0) if since else 0

    @property
    def replicable_offset(self) -> int:
        """End of what slaves may have: without a blank record that nothing follows.

        After a crash such a blank record is cut, and another record may take its place; a slave
        that had it would count as one that has this record.
        """
        log = self.parts.segments
        end = log.max_offset
        closed = None if end % log.file_size else log.find(end - 1)
        return end if closed is None else closed.file_from_offset + closed.closed_at

    def append_data(self, offset: int, data: Buffer) -> None:
        """Append bytes of the master's log; see ``CommitLogAppender.append_data``."""
        if not self.parts.segments.mapped_files:
            self.services.reput.reput_from_offset = offset
        self._appender.append_data(offset, data)

    @contextmanager
    def log_data(self, offset: int, most: int) -> Iterator[Bytes | None]:
        """Lend readable bytes of the log from an offset on, up to ``most``, of one segment.

        None where there are none: after the end, or in a segment that was deleted.
        """
        file = self.parts.segments.find(offset)
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
        """Erase a record of which the master has not sent all: it will be sent again."""
        end = self.services.reput.reput_from_offset
        if end < self.parts.segments.max_wrote_offset:
            self.parts.segments.truncate_dirty_files(end)

    def _stop(self) -> None:
        """Let nobody append, then stop the services, so that they flush and dispatch all."""
        self.is_started = False
        self._appender.close()
        self.services.flush.end_replication()
        self.services.shutdown()
        self.index.close()

    def _make_putter(
        self, store_host: bytes, handle_schedule_message: bool, timer_rules: TimerRules | None
    ) -> MessagePutter:
        queues = self.parts.queues
        self._queue_offsets = offsets = QueueOffsetTable(self.config.topic_queue_lock_num)
        offsets.set_all(*queues.next_queue_offsets())
        return MessagePutter(
            self.config,
            self._appender,
            offsets,
            self.services.flush,
            store_host=store_host,
            refusal=self._refusal,
            is_batch_topic=queues.is_batch_topic,
            stats=self.services.stats,
            clock=self.clock,
            handle_schedule_message=handle_schedule_message,
            timer_rules=timer_rules,
            note_put=None if self._is_awaited is None else self._note_put,
        )

    def _note_put(self, topic: str, queue_id: int) -> None:
        if self._is_awaited is not None and self._is_awaited(topic, queue_id):
            self.services.reput.wakeup()

    def _refusal(self) -> Refusal | None:
        """Return why nothing can be put now; asked with every put."""
        if (
            self.is_started
            and self.flags.is_writeable
            and not self.config.is_slave
            and not self.services.flush.is_failing
        ):
            return None
        return Refusal(PutMessageStatus.SERVICE_NOT_AVAILABLE, self._reason())

    def _reason(self) -> str:
        services, flags = self.services, self.flags.flags
        if not self.is_started:
            return "the store was shut down" if self._was_started else "start() the store first"
        if self.config.is_slave:
            return "brokerRole is SLAVE: messages come from the master only"
        if self.flags.gone:
            return self.flags.gone
        for flag, reason in _REASONS:
            if flag in flags:
                return reason
        if services.flush.is_failing:
            return (
                f"the log cannot be forced to the disk: {services.flush.last_error}; if that "
                "stays when it is mended, shut the store down and start it again"
            )
        return (
            f"queues or index cannot be written, puts go on when they can: {self.flags.write_error}"
        )
