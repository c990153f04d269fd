# SPDX-License-Identifier: Apache-2.0
"""Dispatch the records of the growing commit log to queues and index.

Source: RocketMQ ``DefaultMessageStore.ReputMessageService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable

import numpy as np

from store_core.codec.record_frames import RecordFrames, is_record, magic_code_hits, walk_records
from store_core.errors import StoreConfigError, StoreFormatError, StoreWriteError
from store_core.layout import (
    COMMIT_LOG_OFFSET_AT,
    MESSAGE_MAGIC_CODE,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_PREFIX,
)
from store_core.log.live_log import PinnedLog
from store_core.log.recent_appends import RecentAppends
from store_core.queue.dispatch_request import ROUND_BYTES, DispatchDecoder
from store_core.services.service_thread import ServiceThread
from store_core.state.running_flags import RunningFlag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.mapped_file import MappedFile
    from store_core.files.mapped_file_queue import MappedFileQueue
    from store_core.index.index_dispatcher import IndexDispatcher
    from store_core.queue.consume_queue_store import ConsumeQueueStore
    from store_core.services.store_stats import StoreStatsService
    from store_core.state.checkpoint import CheckpointFile
    from store_core.state.running_flags import RunningFlags

    Bytes = npt.NDArray[np.uint8]

logger = logging.getLogger(__name__)
Dispatcher = Callable[[RecordFrames], None]
"""Takes valid frames of one segment, in log order; their bytes are valid only during the call.

A dispatcher may get the same frames again, and has to recognize them.
"""
_MAX_ROWS = 1 << 16  # a quarter of this takes a fifth longer during puts: turns of the lock
_FEW_ROWS = 1 << 13
_MOST_UNPUBLISHED = 32
_REST_SHARE = 9
_MAX_REST_MS = 100
_SEARCH_BYTES = 1 << 20
_INTERVAL_MS = 5
_OWN_OFFSET_END = COMMIT_LOG_OFFSET_AT + 8
_CATCH_UP_BYTES = 64 << 20
_INDEX_INTERVAL_MS = 500


class ReputMessageService(ServiceThread):
    """Dispatches the log from ``reput_from_offset`` to its end, some MiB at a time.

    A round of thousands of records costs little more than one of a few: so the thread rests for
    5 ms where RocketMQ rests for 1 ms, and after a round with few records nine times as long as the
    round took. Otherwise dispatch would take half of the time from threads that put single
    messages. If a reader waits for a message, `wakeup` shortens that rest to the duration of the
    round. The position moves only after all dispatchers have returned: if one of them raises, the
    next round dispatches the same records again.

    If there is no valid record at a position before the end of the log, dispatch goes on at the
    next record in the segment. RocketMQ skips the size that is stored there, or the rest of the
    segment: readable messages after the damage would be in no queue.

    Parameters
    ----------
    recent
        Appends of which the columns are known: their records are not read again. None if there are
        none.

    Attributes
    ----------
    last_dispatched
        Start and store time (ms) of the last dispatched record; (-1, 0) if none.
    """

    repeats_while_busy = True

    def __init__(
        self,
        log: MappedFileQueue,
        dispatchers: Sequence[Dispatcher],
        end_offset: Callable[[], int],
        *,
        publish: Callable[[], None] = lambda: None,
        is_slave: bool = False,
        recent: RecentAppends | None = None,
    ) -> None:
        super().__init__(_INTERVAL_MS)
        self._recent = RecentAppends() if recent is None else recent
        self._is_slave, self._publish, self._unpublished = is_slave, publish, 0
        self.reput_from_offset = 0
        self.last_dispatched = (-1, 0)
        self._log, self._dispatchers, self._end_offset = log, tuple(dispatchers), end_offset

    @property
    def dispatched_timestamp(self) -> int:
        """Store time (ms) of the last dispatched record; 0 if none."""
        return self.last_dispatched[1]

    @property
    def dispatched_start(self) -> int:
        """Start of the last dispatched record; -1 if none."""
        return self.last_dispatched[0]

    @property
    def behind_bytes(self) -> int:
        """Number of bytes that may be dispatched but are not yet."""
        return max(self._end_offset() - self.reput_from_offset, 0)

    def run_once(self) -> bool:
        """Dispatch the next records; return whether the position moved."""
        before, end = self.reput_from_offset, self._end_offset()
        begin, rows = time.thread_time(), 0
        file = self._file_to_do(end)
        if file is not None:
            position = self.reput_from_offset - file.file_from_offset
            with file.select(position, file.readable_position - position) as data:
                if data is not None and len(data):  # None if the file was deleted meanwhile
                    rows = self._dispatch(file, data, end - self.reput_from_offset)
        if 0 < rows < _FEW_ROWS:
            self._leave_time_to_others((time.thread_time() - begin) * 1000)
        return self.reput_from_offset != before

    def wakeup(self) -> None:
        """End the rest, unless it follows an error.

        A reader that waits for messages calls this until they are dispatched: while the index
        cannot be written, rounds would follow each other without a rest.
        """
        if not self.is_failing:
            super().wakeup()

    def finish(self) -> None:
        """Dispatch up to the present end."""
        end = self._end_offset()
        while self.reput_from_offset < end and self.run_once():
            pass

    def _leave_time_to_others(self, taken_ms: float) -> None:
        """Rest after a round with few records; `wakeup` cuts the rest to the round's duration."""
        self.pause(min(taken_ms, _MAX_REST_MS))
        self.pause(min(_REST_SHARE * taken_ms, _MAX_REST_MS) - taken_ms, wakeable=True)

    def _file_to_do(self, end: int) -> MappedFile | None:
        """Return the segment at the position, after skipping deleted or missing segments."""
        at = self.reput_from_offset
        file = self._log.find(at)
        if file is None and at < end:
            later = [f for f in self._log.mapped_files if f.file_from_offset > at]
            if later:
                file = later[0]
                self._skip(file.file_from_offset, "the segment was deleted")
        return file if self.reput_from_offset < end else None

    def _dispatch(self, file: MappedFile, data: Bytes, length: int) -> int:
        """Dispatch the records in the first ``length`` bytes of ``data``; return how many.

        At most the last record of the walk ends after ``length``; no damage after it is seen.
        """
        base = self.reput_from_offset
        known = self._recent.take(base, base + min(length, len(data)), _MAX_ROWS)
        if known is not None:
            return self._dispatch_known(known.frames(data), known.end, known.end - base < length)
        upto = min(length, self._recent.next_start(base, base + length) - base)
        walk = walk_records(data, 0, upto, _MAX_ROWS, ROUND_BYTES)
        frames = RecordFrames(data, base, walk.starts)
        ends = np.append(walk.starts[1:], walk.stop)
        good = int(np.argmin(np.append(frames.ok, False)))
        count = min(good, int(np.searchsorted(ends, upto, "right")))
        if count:
            part = frames if count == len(frames) else frames.take(np.arange(count))
            for dispatcher in self._dispatchers:
                dispatcher(part)
        is_backlog = good == len(frames) and not walk.failed and not walk.blank
        self._publish_now_or_later(is_backlog and count > 0 and ends[count - 1] < length)
        if count:
            self._advance(part, base + int(ends[count - 1]))
            if self._is_slave:  # appends on a slave do not parse records
                file.store_timestamp = self.dispatched_timestamp
        if good < len(frames) or walk.failed:
            at = int(walk.starts[good]) if good < len(frames) else walk.stop
            self._pass(file, data, base, at)
        elif walk.blank:
            self._pass_blank(file, data, base, walk.stop)
        return count

    def _dispatch_known(self, frames: RecordFrames, end: int, more: bool) -> int:
        """Dispatch whole records up to an offset."""
        for dispatcher in self._dispatchers:
            dispatcher(frames)
        self._publish_now_or_later(more)
        self._advance(frames, end)
        return len(frames)

    def _advance(self, frames: RecordFrames, end: int) -> None:
        last = frames.column("commit_log_offset")[-1], frames.column("store_timestamp")[-1]
        self.last_dispatched = (int(last[0]), int(last[1]))
        self.reput_from_offset = end

    def _pass_blank(self, file: MappedFile, data: Bytes, base: int, at: int) -> None:
        """Go on in the next segment; past a damaged record that only looks blank, as in `_pass`."""
        if self._is_slave:
            _require_same_end(file, data, base, at)
        if _end_of_blank(data, base, at) == file.end_offset:
            self.reput_from_offset = file.end_offset
        else:
            self._pass(file, data, base, at)

    def _publish_now_or_later(self, more: bool) -> None:
        """Publish the dispatched entries; postpone it for some rounds if another will follow."""
        self._unpublished += 1
        if not more or self._unpublished >= _MOST_UNPUBLISHED:
            self._publish()
            self._unpublished = 0

    def _pass(self, file: MappedFile, data: Bytes, base: int, at: int) -> None:
        """Go on at the next record after ``at``, or wait if the bytes at ``at`` may become one."""
        self.reput_from_offset = base + at
        if self._is_slave:
            _require_room(file, data, base, at)
        more_to = file.end_offset if self._is_slave else 0
        if not may_become_record(data, base, at, more_to):
            found = _next_record(data, base, at, more_to)
            self._skip(base + found, "there is no valid record")

    def _skip(self, offset: int, reason: str) -> None:
        lost = offset - self.reput_from_offset
        logger.warning(
            "%d bytes of the log from offset %d on are not dispatched: %s",
            lost,
            self.reput_from_offset,
            reason,
        )
        self.reput_from_offset = offset


def may_become_record(data: Bytes, base: int, at: int, more_to: int) -> bool:
    """Return whether the bytes from ``at`` on are the beginning of a record.

    Parameters
    ----------
    data, base
        The bytes of a segment so far, and the physical offset of the first one.
    """
    left = len(data) - at
    if base + len(data) >= more_to:
        return False
    if left < RECORD_PREFIX.size:
        return True
    size, magic = RECORD_PREFIX.struct.unpack_from(data, at)
    if magic not in {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2} or size <= left:
        return False
    return left < _OWN_OFFSET_END or _is_own_offset(data, base, at)


def _is_own_offset(data: Bytes, base: int, at: int) -> bool:
    own = data[at + COMMIT_LOG_OFFSET_AT : at + _OWN_OFFSET_END].tobytes()
    return int.from_bytes(own, "big") == base + at


def _require_room(file: MappedFile, data: Bytes, base: int, at: int) -> None:
    """Raise if a record that has begun belongs to a longer segment."""
    if len(data) - at < _OWN_OFFSET_END:
        return
    size, magic = RECORD_PREFIX.struct.unpack_from(data, at)
    is_message = magic in {MESSAGE_MAGIC_CODE, MESSAGE_MAGIC_CODE_V2}
    if is_message and _is_own_offset(data, base, at) and base + at + size > file.end_offset:
        raise _other_size(f"the record at offset {base + at} ends at {base + at + size}", file)


def _end_of_blank(data: Bytes, base: int, at: int) -> int:
    size: int = RECORD_PREFIX.unpack(data, at).total_size
    return base + at + size


def _require_same_end(file: MappedFile, data: Bytes, base: int, at: int) -> None:
    stop = _end_of_blank(data, base, at)
    if stop != file.end_offset:
        raise _other_size(f"the master's segment ends at {stop}", file)


def _other_size(found: str, file: MappedFile) -> StoreFormatError:
    text = (
        f"{found}, but the segment here ends at {file.end_offset}: the master has another "
        "mappedFileSizeCommitLog, or its log is damaged there; start with an empty directory and "
        "the master's value"
    )
    return StoreFormatError(text, file.path)


def _next_record(data: Bytes, base: int, at: int, more_to: int) -> int:
    """Return where the first record after ``at`` starts; the end of the data if there is none.

    A record whose rest may still arrive, up to ``more_to``, counts.
    """
    begin = at = at + 1
    while at < len(data):
        upto = min(at + _SEARCH_BYTES, len(data))
        for hit in magic_code_hits(data[at : upto + RECORD_PREFIX.size - 1]):
            found = at + hit
            if is_record(data, base, found) or may_become_record(data, base, found, more_to):
                return found
        at = upto
    few = max(len(data) - RECORD_PREFIX.size + 1, begin)
    return few if may_become_record(data, base, few, more_to) else len(data)


# Source: RocketMQ ``CommitLogDispatcherBuildConsumeQueue``, ``CommitLogDispatcherBuildIndex``
# (release 5.3.3).
class QueueDispatch:
    """Adds units to the queues; while that fails, nothing can be put.

    RocketMQ tries 30 times, then the store refuses puts until a restart; here puts go on when the
    disk can be written again. On a slave this counts messages as put: a master counts its own puts.
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
    """Adds entries to the index; while that fails, nothing can be put."""

    def __init__(self, index: IndexDispatcher, flags: RunningFlags) -> None:
        self._index, self._flags = index, flags

    def __call__(self, frames: RecordFrames) -> None:
        """Dispatch records; `publish` makes them visible. See ``ReputMessageService``."""
        with self._flagged():
            self._index.append(frames)

    def publish(self) -> None:
        """Make the dispatched entries visible to queries."""
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
    """Indexes records that the index lacks, and forces its full files to the disk."""

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
        super().__init__(_INDEX_INTERVAL_MS)
        self._is_enabled, self._turn = is_enabled, threading.Lock()
        self._index, self._log, self._root = index, log, root
        self._dispatched_offset, self._checkpoint = dispatched_offset, checkpoint

    @property
    def behind_bytes(self) -> int:
        """Number of dispatched bytes that are not in the index."""
        if not self._index.is_behind:
            return 0
        return max(self._dispatched_offset() - self._index.from_offset, 0)

    def run_once(self) -> bool:
        """Index the next part of the log if the index lacks any; return whether there is more."""
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
        """Delete the index and rebuild it before returning; the store may be in use.

        Queries by key read the log meanwhile.

        Parameters
        ----------
        progress
            Called with the bytes of the log that are done, and their total.

        Raises
        ------
        StoreConfigError
            ``messageIndexEnable`` is false.
        StoreWriteError, StoreReadError
            A file cannot be written or read; the service indexes the rest later.
        """
        if not self._is_enabled:
            raise StoreConfigError("messageIndexEnable is false: the store has no index")
        start = max(self._log.min_offset, 0)
        with self._turn:  # otherwise two threads would index the same records
            self._index.begin_anew(start)
            deleted()
            # Now: after a crash, the checkpoint would count the new files as flushed.
            self._checkpoint.index_msg_timestamp = self._index.flushed_end_timestamp
            self._checkpoint.flush()
        more = True
        while more:
            more = self.run_once()
            if progress is not None:
                done = max(self._index.from_offset - start, 0)
                # Records put after the last part do not count.
                progress(done, max(self._dispatched_offset() - start, done) if more else done)

    def finish(self) -> None:
        """Index all missing records: a broker that opens the store would leave a gap there."""
        while self.run_once():
            pass
