"""The next queue offset of every queue, and the locks that keep queues in the order of the log.

Source: RocketMQ ``QueueOffsetOperator``, ``TopicQueueLock`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Queue = tuple[str, int]

LIGHT_QUEUE_ID = 0


class QueueOffsetTable:
    """Next queue offsets by (topic, queue id); a queue that is not named begins at 0.

    Whoever reads a counter, appends and advances it holds the lock of that queue all the while: so
    offsets grow in the order of the log, and an append that failed uses none.

    Attributes
    ----------
    simple, batch
        Counters of ordinary and of batch queues. A light queue is the ordinary queue 0 of its
        name; its counter is changed under `light_lock` only.
    light_lock
        Of all light queues; taken after the locks of queues.
    """

    def __init__(self, lock_num: int = 32) -> None:
        self.simple: dict[Queue, int] = {}
        self.batch: dict[Queue, int] = {}
        self.light_lock = threading.Lock()
        self._lock_num = lock_num
        self._locks = tuple(threading.Lock() for _ in range(lock_num))

    def set_all(self, simple: Mapping[Queue, int], batch: Mapping[Queue, int]) -> None:
        """Replace all counters, as recovery found them; nothing may be put meanwhile."""
        self.simple.clear()
        self.simple.update(simple)
        self.batch.clear()
        self.batch.update(batch)

    def counters(self, is_batch: bool) -> dict[Queue, int]:
        """Return the counters of batch queues or of ordinary ones."""
        return self.batch if is_batch else self.simple

    def remove(self, topic: str) -> None:
        """Forget the queues of a deleted topic; the caller holds `all_locks`."""
        for counters in (self.simple, self.batch):
            for queue in [queue for queue in list(counters) if queue[0] == topic]:
                counters.pop(queue, None)

    def lock(self, queue: Queue) -> threading.Lock:
        """Return the lock of a queue, which others share."""
        return self._locks[hash(queue) % self._lock_num]

    @contextmanager
    def locks(self, queues: Iterable[Queue], light: bool = False) -> Iterator[None]:
        """Hold the locks of many queues, always taken in the same order.

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
        """Count one message for each name."""
        for name in names:
            self.simple[name, LIGHT_QUEUE_ID] = self.next_light(name) + 1
