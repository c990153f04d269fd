"""All consume queues of a store while it is written: load, recover, dispatch, cut, expire, flush.

Source: RocketMQ ``ConsumeQueueStore`` (release 5.3.3).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Union

import numpy as np

from store_core.errors import StoreFormatError
from store_core.files.file_writing import write_error
from store_core.files.segment_list import SegmentList, load_segments
from store_core.files.store_directory import StoreDirectory
from store_core.layout.consume_queue import BATCH_CQ_UNIT, CQ_UNIT
from store_core.queue.consume_queue import list_consume_queues
from store_core.queue.consume_queue_writer import Appended, QueueFiles
from store_core.queue.live_batch_queue import LiveBatchQueue
from store_core.queue.live_queue import LiveQueue
from store_core.queue.live_queue_ext import LiveQueueExt
from store_core.queue.queue_directories import check_kind, configured_kinds, is_directory_name
from store_core.queue.queue_file_sizes import BATCH_ROOT, EXT_ROOT, SIMPLE_ROOT, queue_file_sizes

if TYPE_CHECKING:
    from store_core.config import MessageStoreConfig
    from store_core.log.readable_log import ReadableLog
    from store_core.queue.consume_queue_ext_writer import FilterBitmaps
    from store_core.queue.dispatch_request import DispatchRequests

logger = logging.getLogger(__name__)

AnyQueue = Union[LiveQueue, LiveBatchQueue]
QueueKey = tuple[str, int]

_KINDS = {
    SIMPLE_ROOT: ("mappedFileSizeConsumeQueue", CQ_UNIT.size),
    EXT_ROOT: ("mappedFileSizeConsumeQueueExt", 1),
    BATCH_ROOT: ("mapperFileSizeBatchConsumeQueue", BATCH_CQ_UNIT.size),
}


class ConsumeQueueStore:
    """The queues of all topics. No file is open between calls, however many queues there are.

    One thread dispatches (`put`), others read, one may expire and flush. Cutting and recovery are
    done while nothing else is.

    Parameters
    ----------
    root
        The store (``storePathRootDir``).
    config
        Sizes of files (None: those of the files that are there, else RocketMQ's defaults),
        ``enable_consume_queue_ext``, ``enable_multi_dispatch``.
    is_batch_topic
        Tells whether the queues of a new topic are batch queues; None: as ``topics.json`` said
        when the store was loaded.
    filter_bitmaps
        Gives the filter bitmaps of extension units; None: there are none.

    Attributes
    ----------
    refused
        Queues that no directory can be made for, and the rows that each would have got.
    """

    def __init__(
        self,
        root: str,
        config: MessageStoreConfig,
        *,
        is_batch_topic: Callable[[str], bool] | None = None,
        filter_bitmaps: FilterBitmaps | None = None,
    ) -> None:
        self.directory = StoreDirectory(root)
        self.refused: dict[QueueKey, int] = {}
        self._config, self._filter_bitmaps = config, filter_bitmaps
        self._sizes = queue_file_sizes(self.directory, config)
        self._is_batch_topic = is_batch_topic or self._is_configured_batch
        self._batch_topics: frozenset[str] = frozenset()
        self._queues: dict[QueueKey, AnyQueue] = {}

    def load(self) -> None:
        """Find the queues that are there (``ConsumeQueueStore.load``); opens none of their files.

        Raises
        ------
        StoreFormatError
            A file has another length than it should, a topic's queues are of another kind than
            ``topics.json`` says. A broker would not start either.
        StoreReadError
            A directory cannot be read.
        """
        is_batch_of = configured_kinds(self.directory)
        queues: dict[QueueKey, AnyQueue] = {}
        for key, path in list_consume_queues(self.directory, SIMPLE_ROOT).queues.items():
            check_kind(key[0], path, is_batch_of, is_batch=False)
            queues[key] = self._simple(*key)
        for key, path in list_consume_queues(self.directory, BATCH_ROOT).queues.items():
            check_kind(key[0], path, is_batch_of, is_batch=True)
            is_batch_of[key[0]] = True
            queues[key] = self._batch(*key)
        self._batch_topics = frozenset(topic for topic, is_batch in is_batch_of.items() if is_batch)
        self._queues = queues

    def recover(self, *, trusted: bool = True) -> None:
        """Find the end of each queue; changes nothing. ``trusted``: see `LiveQueue.recover`."""
        for queue in self._all():
            queue.recover(trusted=trusted)

    def put(self, requests: DispatchRequests) -> Appended:
        """Add the units of records; what is there is skipped, so a call may be repeated.

        Parameters
        ----------
        requests
            In log order, without those that get no unit (`DispatchRequests.queued`).

        Raises
        ------
        StoreWriteError
            A file cannot be written. Some queues may have got their units.
        """
        counts = Appended()
        for key, rows in self._by_queue(requests, counts_refused=True):
            queue = self._queue(*key)
            try:
                appended = queue.append(rows)
            except OSError as err:
                raise self._error(err, key) from err
            counts = Appended(*(a + b for a, b in zip(counts, appended)))
        return counts

    def cut_torn(self, requests: DispatchRequests) -> int:
        """Cut queues at units that a power failure tore (`LiveQueue.cut_torn`).

        Returns how many units were cut off. `put` gives the same rows what they lack then.
        """
        count = 0
        for key, rows in self._by_queue(requests):
            queue = self._queues.get(key)
            if queue is not None:
                try:
                    count += queue.cut_torn(rows)
                except OSError as err:
                    raise self._error(err, key) from err
        return count

    def drop_expired(self, requests: DispatchRequests, min_phy_offset: int) -> None:
        """Cut off all units of queues that have only expired ones, and lack some behind them.

        `put` lets such a queue begin with the first row then, at that row's queue offset. RocketMQ
        goes on where the units end: all later messages get other queue offsets than they say.
        """
        for key, rows in self._by_queue(requests):
            queue = self._queues.get(key)
            if (
                isinstance(queue, LiveQueue)
                and 0 <= queue.max_physic_offset <= min_phy_offset
                and int(rows.queue_offset[0]) > queue.max_offset
            ):
                logger.warning("queue %d of topic %s lacks units before %d, which expired",
                               key[1], key[0], rows.queue_offset[0])  # fmt: skip
                try:
                    queue.truncate(0)
                except OSError as err:
                    raise self._error(err, key) from err

    @property
    def max_physic_offset(self) -> int:
        """End of the last record that is in any queue; -1 for none."""
        return max((queue.max_physic_offset for queue in self._all()), default=-1)

    @property
    def dispatch_from(self) -> int:
        """Offset of the log before which no queue lacks a unit, as far as is known; -1: none.

        The end of what was dispatched, or of what is left of a queue that lost units, or was cut.
        """
        lost = [queue.lost_from for queue in self._all() if queue.lost_from is not None]
        return min([self.max_physic_offset, *lost])

    def truncate_dirty(self, phy_offset: int) -> tuple[QueueKey, ...]:
        """Cut off the units of records at or behind an offset of the log; return whose queues.

        What lies behind the end of any queue becomes zeros, on the disk too; see
        `LiveQueue.truncate`. RocketMQ does nothing where no queue reaches behind the offset.
        """
        changed = []
        for key, queue in list(self._queues.items()):
            try:
                if queue.truncate(queue.end_below(phy_offset)):
                    changed.append(key)
            except OSError as err:
                raise self._error(err, key) from err
        return tuple(changed)

    def is_batch_topic(self, topic: str) -> bool:
        """Tell whether the queues of a topic are batch queues."""
        return self._is_batch_topic(topic)

    def reaches(self, key: QueueKey, phy_offset: int) -> bool:
        """Tell whether a queue has units of records at or behind an offset of the log."""
        queue = self._queues[key]
        return queue.max_physic_offset > phy_offset

    def cut_phantoms(self, log: ReadableLog) -> tuple[QueueKey, ...]:
        """Take queues to end before units that point at no record of theirs; return which do.

        Cutting a log without erasing leaves such units; when it has grown over the cut, RocketMQ
        takes them for messages, and skips the units of new ones. What points behind the end of
        the log's files, or before its first, is not looked at.

        On the disk they stay until `put` and `truncate_dirty` go over them: who recovers the store
        after a crash in between has to see what is wrong.
        """
        found = []
        for key in _suspects(log, list(self._queues.items())):
            queue = self._queues[key]
            end = queue.proved_end(log)
            if end != queue.max_offset:
                found.append(key)
                queue.truncate(end, on_disk=False)
        return tuple(found)

    def count_missing(self, requests: DispatchRequests) -> int:
        """Return how many rows `put` would add, about."""
        count = 0
        for key, rows in self._by_queue(requests):
            queue = self._queues.get(key)
            last = queue.max_physic_offset if queue is not None else -1
            count += int(np.count_nonzero(rows.commit_log_offset + rows.message_size > last))
        return count

    def correct_min_offsets(self, min_phy_offset: int) -> None:
        """Move the first offset of each queue to the first record that is in the log."""
        for queue in self._all():
            queue.correct_min_offset(min_phy_offset)

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files of which no record is left in the log; return how many."""
        return sum(self.delete_expired_of(key, min_phy_offset) for key in self.queues())

    def delete_expired_of(self, key: QueueKey, min_phy_offset: int) -> int:
        """Delete expired files of one queue; return how many."""
        queue = self._queues.get(key)
        if queue is None:
            return 0
        try:
            return queue.delete_expired(min_phy_offset)
        except OSError as err:
            raise self._error(err, key) from err

    def flush(self) -> None:
        """Make all that was put survive a loss of power. Cheap where nothing was."""
        for key, queue in list(self._queues.items()):
            try:
                queue.flush()
            except OSError as err:
                raise self._error(err, key) from err

    def next_queue_offsets(self) -> tuple[dict[QueueKey, int], dict[QueueKey, int]]:
        """Return the end of each queue: those of simple ones, those of batch queues."""
        simple: dict[QueueKey, int] = {}
        batch: dict[QueueKey, int] = {}
        for key, queue in list(self._queues.items()):
            (batch if isinstance(queue, LiveBatchQueue) else simple)[key] = queue.max_offset
        return simple, batch

    def find(self, topic: str, queue_id: int) -> AnyQueue | None:
        """Return a queue; None when it does not exist."""
        return self._queues.get((topic, queue_id))

    def queues(self) -> list[QueueKey]:
        """Return (topic, queue id) of all queues."""
        return list(self._queues)

    def close(self) -> None:
        """Flush everything."""
        self.flush()

    def destroy(self) -> None:
        """Delete the files of all queues."""
        for key, queue in list(self._queues.items()):
            try:
                queue.destroy()
            except OSError as err:
                raise self._error(err, key) from err
        self._queues = {}

    def _all(self) -> list[AnyQueue]:
        return list(self._queues.values())

    def _by_queue(
        self, requests: DispatchRequests, *, counts_refused: bool = False
    ) -> list[tuple[QueueKey, DispatchRequests]]:
        if not self._config.enable_multi_dispatch and requests.light.any():
            requests = requests.take(~requests.light)
        found = []
        for topic, queue_id, rows in requests.by_queue():
            if queue_id >= 0 and is_directory_name(topic):
                found.append(((topic, queue_id), rows))
            elif counts_refused:
                key = (topic, queue_id)
                self.refused[key] = self.refused.get(key, 0) + len(rows)
                logger.warning("no directory can be made for queue %d of topic %r", queue_id, topic)
        return found

    def _queue(self, topic: str, queue_id: int) -> AnyQueue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            is_batch = self._is_batch_topic(topic)
            queue = self._batch(topic, queue_id) if is_batch else self._simple(topic, queue_id)
            queue.recover(trusted=True)
            self._queues[topic, queue_id] = queue
        return queue

    def _simple(self, topic: str, queue_id: int) -> LiveQueue:
        segments = self._segments(SIMPLE_ROOT, topic, queue_id, self._sizes.simple)
        files = self._files(SIMPLE_ROOT, topic, queue_id, self._sizes.simple)
        ext = None
        if self._config.enable_consume_queue_ext:
            ext = LiveQueueExt(
                self.directory,
                self._segments(EXT_ROOT, topic, queue_id, self._sizes.ext).segments,
                self._files(EXT_ROOT, topic, queue_id, self._sizes.ext),
                self._filter_bitmaps,
            )
        return LiveQueue(self.directory, topic, queue_id, segments, files, ext)

    def _batch(self, topic: str, queue_id: int) -> LiveBatchQueue:
        segments = self._segments(BATCH_ROOT, topic, queue_id, self._sizes.batch)
        files = self._files(BATCH_ROOT, topic, queue_id, self._sizes.batch)
        return LiveBatchQueue(self.directory, topic, queue_id, segments, files)

    def _files(self, root_name: str, topic: str, queue_id: int, file_size: int) -> QueueFiles:
        path = self.directory.resolve(root_name, topic, str(queue_id))
        return QueueFiles(Path(path), file_size)

    def _segments(self, root_name: str, topic: str, queue_id: int, file_size: int) -> SegmentList:
        option, unit_bytes = _KINDS[root_name]
        path = self.directory.resolve(root_name, topic, str(queue_id))
        listed = self.directory.list(path)
        segments = load_segments(listed, file_size=file_size, unit_bytes=unit_bytes, option=option)
        for segment in segments:
            if segment.size != file_size:
                text = f"the file has {segment.size} bytes, {option} is {file_size}"
                raise StoreFormatError(text, segment.path)
        return segments

    def _is_configured_batch(self, topic: str) -> bool:
        return topic in self._batch_topics

    def _error(self, err: OSError, key: QueueKey) -> Exception:
        return write_error(err, str(err.filename or f"queue {key[1]} of topic {key[0]}"))


def _suspects(log: ReadableLog, queues: list[tuple[QueueKey, AnyQueue]]) -> list[QueueKey]:
    """Return the queues whose last unit does not point at a record; simple ones only."""
    held = [(queue.last_start, key) for key, queue in queues if isinstance(queue, LiveQueue)]
    held.sort()
    starts = np.array([start for start, _ in held], np.int64)
    size, suspects = log.segments.file_size, []
    for segment in log.segments:
        low, high = np.searchsorted(starts, (segment.from_offset, segment.from_offset + size))
        if low == high:
            continue
        frames = log.frames_at(segment, starts[low:high], segment.from_offset + size)
        good = frames.ok.tolist()
        suspects += [held[row][1] for row in range(low, high) if not good[row - low]]
    return suspects
