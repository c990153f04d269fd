# SPDX-License-Identifier: Apache-2.0
"""All consume queues of a store that is written: load, recover, dispatch, cut, expire, flush.

Source: RocketMQ ``ConsumeQueueStore`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Union

from store_core.errors import StoreFormatError
from store_core.files.file_writing import write_error
from store_core.files.segment_list import load_segments
from store_core.files.store_directory import StoreDirectory
from store_core.queue.batch_consume_queue_writer import BatchConsumeQueueWriter
from store_core.queue.consume_queue import ConsumeQueue
from store_core.queue.consume_queue_ext import ConsumeQueueExtWriter
from store_core.queue.consume_queue_writer import ConsumeQueueWriter, RecentUnits
from store_core.queue.queue_directories import (
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    QueueKind,
    check_kind,
    configured_kinds,
    is_directory_name,
    list_consume_queues,
    queue_file_sizes,
)
from store_core.queue.queue_files import NewNames, QueueFiles
from store_core.queue.unit_placement import Appended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from store_core.config.message_store_config import MessageStoreConfig
    from store_core.files.segment_list import SegmentList
    from store_core.queue.dispatch_request import DispatchRequests, FilterBitmapsOf

    Queue = tuple[str, int]

logger = logging.getLogger(__name__)
AnyQueueWriter = Union[ConsumeQueueWriter, BatchConsumeQueueWriter]
QueueKey = tuple[str, int]
LIGHT_QUEUE_ID = 0


class ConsumeQueueStore:
    """The queues of all topics. No file is open between calls, however many queues there are.

    One thread dispatches (`put`), others read, one may expire and flush. Nothing else may run
    during a cut or recovery.

    Parameters
    ----------
    config
        File sizes (if None, those of existing files, else RocketMQ's defaults),
        ``enable_consume_queue_ext``, ``enable_multi_dispatch``.
    is_batch_topic
        Returns whether the queues of a new topic are batch queues; optional, by default as in
        ``topics.json`` when the store was loaded.
    filter_bitmaps
        Returns the filter bitmaps of extension units; None if there are none.
    warn
        Called for each batch of records whose queue cannot have a directory.

    Attributes
    ----------
    filter_bitmaps
        As given, for the code that makes dispatch requests; None if no extension units are written.
    """

    def __init__(
        self,
        root: str,
        config: MessageStoreConfig,
        *,
        is_batch_topic: Callable[[str], bool] | None = None,
        filter_bitmaps: FilterBitmapsOf | None = None,
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        self.directory = StoreDirectory(root)
        self.refused: dict[QueueKey, int] = {}
        self._warn = warn
        self._config = config
        self.filter_bitmaps = filter_bitmaps if config.enable_consume_queue_ext else None
        self._sizes = queue_file_sizes(self.directory, config)
        self.is_batch_topic = is_batch_topic or self._is_configured_batch
        self._batch_topics: frozenset[str] = frozenset()
        self._recent = RecentUnits()
        self._names, self._flushing = NewNames(), threading.Lock()
        self._simple_queues: dict[QueueKey, ConsumeQueueWriter] = {}
        self._batch_queues: dict[QueueKey, BatchConsumeQueueWriter] = {}

    def load(self) -> None:
        """List the store's queues (``ConsumeQueueStore.load``); opens none of their files.

        Raises
        ------
        StoreFormatError
            A file has a wrong length, or a topic's queues are not of the kind in ``topics.json``.
            A broker would not start either.
        StoreReadError
            A directory cannot be read.
        """
        is_batch_of = configured_kinds(self.directory)
        simple: dict[QueueKey, ConsumeQueueWriter] = {}
        batch: dict[QueueKey, BatchConsumeQueueWriter] = {}
        for key, path in list_consume_queues(self.directory).queues.items():
            check_kind(key[0], path, is_batch_of, is_batch=False)
            simple[key] = self._simple(*key)
        for key, path in list_consume_queues(self.directory, BATCH_CONSUME_QUEUE).queues.items():
            check_kind(key[0], path, is_batch_of, is_batch=True)
            is_batch_of[key[0]] = True
            simple.pop(key, None)
            batch[key] = self._batch(*key)
        self._batch_topics = frozenset(topic for topic, is_batch in is_batch_of.items() if is_batch)
        self._simple_queues, self._batch_queues = simple, batch

    def recover(self, *, trusted: bool = True) -> None:
        """Find the end of each queue; changes nothing (`ConsumeQueueWriter.recover`)."""
        for queue in self._all():
            queue.recover(trusted=trusted)

    def put(self, requests: DispatchRequests, *, from_zero: bool = False) -> Appended:
        """Add the units of records; existing ones are skipped, so a call may be repeated.

        Parameters
        ----------
        from_zero
            The records go back without a gap to the very first one, at offset 0 of the log, so
            every queue that starts with them starts at 0.

        Raises
        ------
        StoreWriteError
            A file cannot be written. Some queues may already have their units.
        """
        counts = Appended()
        for key, rows in self.by_queue(requests):
            appended = self.put_queue(key, rows, from_zero=from_zero)
            counts = Appended(*(a + b for a, b in zip(counts, appended)))
        return counts

    def put_queue(
        self, key: QueueKey, rows: DispatchRequests, *, from_zero: bool = False
    ) -> Appended:
        """Add the units of records of one queue (`put`)."""
        queue = self._queue(*key)
        with self.errors_of(key):
            return queue.append(rows, from_zero=from_zero)

    def by_queue(self, requests: DispatchRequests) -> list[tuple[QueueKey, DispatchRequests]]:
        """Return the rows of each queue; those that cannot have a directory are `refused`."""
        if not self._config.enable_multi_dispatch and requests.light.any():
            requests = requests.take(~requests.light)
        found = []
        for topic, queue_id, rows in requests.by_queue():
            key = (topic, queue_id)
            if queue_id >= 0 and is_directory_name(topic):
                found.append((key, rows))
            else:
                self.refused[key] = self.refused.get(key, 0) + len(rows)
                self._warn(f"cannot create a directory for queue {queue_id} of topic {topic!r}")
        return found

    @contextmanager
    def errors_of(self, key: QueueKey) -> Iterator[None]:
        """Turn an ``OSError`` into a `StoreWriteError` that names the file or the queue."""
        try:
            yield
        except OSError as err:
            what = f"queue {key[1]} of topic {key[0]}"
            raise write_error(err, str(err.filename or what)) from err

    @property
    def max_physic_offset(self) -> int:
        """End of the last record that is in any queue; -1 if none is."""
        return max((queue.max_physic_offset for queue in self._all()), default=-1)

    @property
    def dispatch_from(self) -> int:
        """Log offset before which no queue is known to lack a unit; -1 if no queue has a record.

        The end of the last dispatched record or, if lower, of a queue that lost units or was cut.
        """
        lost = [queue.lost_from for queue in self._all() if queue.lost_from is not None]
        return min([self.max_physic_offset, *lost])

    def truncate_dirty(self, phy_offset: int) -> tuple[QueueKey, ...]:
        """Cut off the units of records at or after a log offset; return the queues that had some.

        Everything after the end of any queue becomes zeros, on the disk too
        (`ConsumeQueueWriter.truncate`). RocketMQ does nothing if no queue reaches the offset.
        """
        changed = []
        for key, queue in self._items():
            with self.errors_of(key):
                if queue.truncate(queue.end_below(phy_offset)):
                    changed.append(key)
        return tuple(changed)

    def reaches(self, key: QueueKey, phy_offset: int) -> bool:
        """Return whether a queue has units of records at or after an offset of the log."""
        queue = self.find(*key)
        return queue is not None and queue.max_physic_offset > phy_offset

    def correct_min_offsets(self, min_phy_offset: int) -> None:
        """Move the first offset of each queue to its first record that is still in the log."""
        for queue in self._all():
            queue.correct_min_offset(min_phy_offset)

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files without a record left in the log; return how many."""
        return sum(self.delete_expired_of(key, min_phy_offset) for key in self.queues())

    def delete_expired_of(self, key: QueueKey, min_phy_offset: int) -> int:
        """Delete expired files of one queue; return how many."""
        queue = self.find(*key)
        if queue is None:
            return 0
        with self.errors_of(key):
            return queue.delete_expired(min_phy_offset)

    def is_worth_flush(self, least_pages: int) -> bool:
        """Return whether any queue has that many pages waiting for the disk."""
        return any(queue.is_worth_flush(least_pages) for _, queue in self._items())

    def flush(self, least_pages: int = 0) -> None:
        """Make everything put so far survive a power loss; cheap if nothing was put.

        Flushes only queues with ``least_pages`` pages waiting, or with full files. If another
        thread is flushing, waits for it: what that one is forcing may not be on the disk yet.
        """
        with self._flushing:
            for key, queue in self._items():
                with self.errors_of(key):
                    queue.flush(least_pages)

    def next_queue_offsets(self) -> tuple[dict[QueueKey, int], dict[QueueKey, int]]:
        """Return the end of each simple queue, and of each batch queue."""
        simple = {key: queue.max_offset for key, queue in list(self._simple_queues.items())}
        batch = {key: queue.max_offset for key, queue in list(self._batch_queues.items())}
        return simple, batch

    def find(self, topic: str, queue_id: int) -> AnyQueueWriter | None:
        """Return a queue; None if it does not exist."""
        return self.find_simple(topic, queue_id) or self.find_batch(topic, queue_id)

    def find_simple(self, topic: str, queue_id: int) -> ConsumeQueueWriter | None:
        """Return a queue with one unit per message; None if there is none of this kind."""
        return self._simple_queues.get((topic, queue_id))

    def find_batch(self, topic: str, queue_id: int) -> BatchConsumeQueueWriter | None:
        """Return a batch queue; None if there is none of this kind."""
        return self._batch_queues.get((topic, queue_id))

    def queues(self) -> list[QueueKey]:
        """Return (topic, queue id) of all queues."""
        return [*self._simple_queues, *self._batch_queues]

    def delete_topic(self, topic: str) -> bool:
        """Delete the queues of a topic; return whether it had any.

        Its records stay in the log, but nothing points to them. No message of the topic may be
        dispatched meanwhile.
        """
        keys = [key for key in self.queues() if key[0] == topic]
        for key in keys:
            queue = self._simple_queues.pop(key, None) or self._batch_queues.pop(key, None)
            if queue is not None:
                with self.errors_of(key):
                    queue.destroy()
                self._remove_directories(*key)
        if keys:
            self._remove_directories(topic)
        return bool(keys)

    def close(self) -> None:
        """Flush everything."""
        self.flush()

    def destroy(self) -> None:
        """Delete the files of all queues."""
        for key, queue in self._items():
            with self.errors_of(key):
                queue.destroy()
        self._simple_queues, self._batch_queues = {}, {}

    def _remove_directories(self, topic: str, queue_id: int | None = None) -> None:
        names = (topic,) if queue_id is None else (topic, str(queue_id))
        for kind in (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE):
            path = self.directory.resolve(kind.directory, *names)
            with suppress(OSError):  # it does not exist, or is not empty
                Path(path).rmdir()

    def _all(self) -> list[AnyQueueWriter]:
        return [queue for _, queue in self._items()]

    def _items(self) -> list[tuple[QueueKey, AnyQueueWriter]]:
        return [*self._simple_queues.items(), *self._batch_queues.items()]

    def _queue(self, topic: str, queue_id: int) -> AnyQueueWriter:
        queue = self.find(topic, queue_id)
        if queue is not None:
            return queue
        if self.is_batch_topic(topic):
            batch = self._batch(topic, queue_id)
            batch.recover(trusted=True)
            self._batch_queues[topic, queue_id] = batch
            return batch
        simple = self._simple(topic, queue_id)
        simple.recover(trusted=True)
        self._simple_queues[topic, queue_id] = simple
        return simple

    def _simple(self, topic: str, queue_id: int) -> ConsumeQueueWriter:
        segments, files = self._files(CONSUME_QUEUE, topic, queue_id, self._sizes.simple)
        queue = ConsumeQueue(self.directory, topic, queue_id, segments)
        ext = self._ext(topic, queue_id) if self._config.enable_consume_queue_ext else None
        return ConsumeQueueWriter(queue, files, self._recent, ext)

    def _ext(self, topic: str, queue_id: int) -> ConsumeQueueExtWriter:
        segments, files = self._files(CONSUME_QUEUE_EXT, topic, queue_id, self._sizes.ext)
        return ConsumeQueueExtWriter(self.directory, segments, files)

    def _batch(self, topic: str, queue_id: int) -> BatchConsumeQueueWriter:
        segments, files = self._files(BATCH_CONSUME_QUEUE, topic, queue_id, self._sizes.batch)
        return BatchConsumeQueueWriter(self.directory, (topic, queue_id), segments, files)

    def _files(
        self, kind: QueueKind, topic: str, queue_id: int, file_size: int
    ) -> tuple[SegmentList, QueueFiles]:
        """Return the existing files of a queue, and the object that writes them."""
        path = self.directory.resolve(kind.directory, topic, str(queue_id))
        segments = load_segments(
            self.directory.list(path),
            file_size=file_size,
            unit_bytes=kind.unit_bytes,
            option=kind.size_option,
        )
        for segment in segments:
            if segment.size != file_size:
                text = f"the file has {segment.size} bytes, but {kind.size_option} is {file_size}"
                raise StoreFormatError(text, segment.path)
        return segments, QueueFiles(Path(path), file_size, self._names)

    def _is_configured_batch(self, topic: str) -> bool:
        return topic in self._batch_topics


# Source: RocketMQ ``QueueOffsetOperator``, ``TopicQueueLock`` (release 5.3.3).
class QueueOffsetTable:
    """Next queue offsets by (topic, queue id); a queue that is not listed begins at 0.

    A writer holds the lock of a queue while it reads the counter, appends and advances the counter,
    so offsets grow in log order, and a failed append uses none.

    Attributes
    ----------
    simple, batch
        Counters of ordinary and of batch queues. A light queue is the ordinary queue 0 of its
        name; its counter changes only under `light_lock`.
    light_lock
        The lock of all light queues; acquired after the locks of queues.
    """

    def __init__(self, lock_num: int = 32) -> None:
        self.simple: dict[Queue, int] = {}
        self.batch: dict[Queue, int] = {}
        self.light_lock = threading.Lock()
        self._lock_num = lock_num
        self._locks = tuple(threading.Lock() for _ in range(lock_num))

    def set_all(self, simple: Mapping[Queue, int], batch: Mapping[Queue, int]) -> None:
        """Replace all counters by those from recovery; nothing may be put meanwhile."""
        self.simple.clear()
        self.simple.update(simple)
        self.batch.clear()
        self.batch.update(batch)

    def counters(self, is_batch: bool) -> dict[Queue, int]:
        """Return the counters of batch queues or of ordinary ones."""
        return self.batch if is_batch else self.simple

    def remove(self, topic: str) -> None:
        """Remove the queues of a deleted topic; the caller holds `all_locks`."""
        for counters in (self.simple, self.batch):
            for queue in [queue for queue in list(counters) if queue[0] == topic]:
                counters.pop(queue, None)

    def lock(self, queue: Queue) -> threading.Lock:
        """Return the lock of a queue, which other queues share."""
        return self._locks[hash(queue) % self._lock_num]

    @contextmanager
    def locks(self, queues: Iterable[Queue], light: bool = False) -> Iterator[None]:
        """Hold the locks of many queues, always acquired in the same order.

        Parameters
        ----------
        light
            Hold the lock of light queues too.
        """
        numbers = sorted({hash(queue) % self._lock_num for queue in queues})
        with ExitStack() as held:
            for number in numbers:
                held.enter_context(self._locks[number])
            if light:
                held.enter_context(self.light_lock)
            yield

    @contextmanager
    def all_locks(self) -> Iterator[None]:
        """Hold all locks: nothing is put meanwhile."""
        with ExitStack() as held:
            for lock in (*self._locks, self.light_lock):
                held.enter_context(lock)
            yield

    def next_light(self, name: str) -> int:
        """Return the next offset of a light queue."""
        return self.simple.get((name, LIGHT_QUEUE_ID), 0)

    def advance_light(self, names: Iterable[str]) -> None:
        """Advance the next offset of each light queue by one."""
        for name in names:
            self.simple[name, LIGHT_QUEUE_ID] = self.next_light(name) + 1
