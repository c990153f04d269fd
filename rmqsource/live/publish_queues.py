"""Queues that rows are sent to: all of a topic, on all brokers, in one fixed order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import numpy as np

from rmqsource.sink.queues import QueueChooser
from store_core.arrow import pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from rmqnet.client.message_queue import MessageQueue
    from store_core.arrow_types import Array

    Int32s = npt.NDArray[np.int32]
    QueuesOf = Callable[[str], Sequence[MessageQueue]]


class LiveQueueChooser(QueueChooser):
    """Gives every row the number of its queue among those of its topic.

    Rows without a queue id: by the hash of their sharding key, as Java's producers, or round robin.
    A queue id that several brokers have is on the one that its remainder says, so that rows of one
    queue id stay in order; one that no broker has gets the number after the last.

    Parameters
    ----------
    queues
        Returns the queues of a topic.
    first
        Where round robin begins, so that tasks do not all begin with the same queue.
    """

    def __init__(self, queues: QueuesOf, first: int) -> None:
        super().__init__(None, {}, first)
        self._all = queues

    def queues_of(self, topic: str) -> int:
        """Return how many queues a topic has on all brokers."""
        return len(self._all(topic))

    def choose(
        self,
        topics: Sequence[str],
        topic_code: Int32s,
        queue_id: Array | None,
        sharding_key: Array | None,
    ) -> Int32s:
        """Return the number of every row's queue; parameters as of `QueueChooser.choose`."""
        if queue_id is not None:
            numbers = queue_id.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            for code, topic in enumerate(topics):
                rows = np.flatnonzero((topic_code == code) & (numbers >= 0))
                numbers[rows] = self._numbered(topic, numbers[rows])
            queue_id = pa.array(numbers)
        return super().choose(topics, topic_code, queue_id, sharding_key)

    def _numbered(self, topic: str, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        queues = self._all(topic)
        by_id: dict[int, list[int]] = {}
        for number, queue in enumerate(queues):
            by_id.setdefault(queue.queue_id, []).append(number)
        table = np.full(max(by_id, default=0) + 2, len(queues), np.int64)
        for queue_id, numbers in by_id.items():
            table[queue_id] = numbers[queue_id % len(numbers)]
        return table[np.minimum(ids, len(table) - 1)]
