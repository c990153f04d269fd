# SPDX-License-Identifier: Apache-2.0
"""Choose queues for rows that name none.

Source: RocketMQ ``SelectMessageQueueByHash``, ``TopicPublishInfo.selectOneMessageQueue`` (release
5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store_core.arrow import pa
from store_core.codec.group_ranks import group_ranks
from store_core.codec.java_string import string_hashes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from store_core.arrow_types import Array

    Int64s = npt.NDArray[np.int64]

_QUEUE_BITS = 32
DEFAULT_QUEUES = 4
"""Queues that a producer requests for a topic that does not exist (``defaultTopicQueueNums``)."""


class QueueChooser:
    """Assigns queues to rows without one: by the hash of the sharding key, else round robin.

    Parameters
    ----------
    queues
        Number of queues of every topic; if None, as ``known`` says, else 4.

    Attributes
    ----------
    needed
        Topic -> number of queues that the chosen queue ids require.
    """

    def __init__(self, queues: int | None, known: Mapping[str, int], first: int) -> None:
        self._queues, self._known = queues, known
        self._first = first
        self._next: dict[str, int] = {}
        self.needed: dict[str, int] = {}

    def queues_of(self, topic: str) -> int:
        """Return the number of queues over which a topic's rows are spread."""
        return self._queues or max(self._known.get(topic, 0), 0) or DEFAULT_QUEUES

    def choose(
        self,
        topics: Sequence[str],
        topic_code: npt.NDArray[np.int32],
        queue_id: Array | None,
        sharding_key: Array | None,
    ) -> npt.NDArray[np.int32]:
        """Return the queue id of every row.

        Parameters
        ----------
        queue_id
            ``pa.Int32Array`` with nulls, or None.
        sharding_key
            ``pa.StringArray`` with nulls, or None.
        """
        counts = np.array([self.queues_of(topic) for topic in topics], np.int64)
        chosen = np.full(len(topic_code), -1, np.int64)
        if queue_id is not None:
            chosen = queue_id.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        if sharding_key is not None and sharding_key.null_count < len(sharding_key):
            keyed = sharding_key.is_valid().to_numpy(zero_copy_only=False) & (chosen < 0)
            # Java: hash % queues, made positive; the remainder has the sign of the hash.
            hashes = np.abs(string_hashes(sharding_key).astype(np.int64))
            chosen = np.where(keyed, hashes % counts[topic_code], chosen)
        open_rows = np.flatnonzero(chosen < 0)
        if len(open_rows):
            chosen[open_rows] = self._round_robin(topics, topic_code[open_rows], counts)
        self._note_needed(topics, topic_code, chosen)
        return chosen.astype(np.int32)

    def _note_needed(
        self, topics: Sequence[str], topic_code: npt.NDArray[np.int32], chosen: Int64s
    ) -> None:
        used = pa.array(topic_code.astype(np.int64) << _QUEUE_BITS | chosen).unique()
        for key in used.to_pylist():
            topic, queue_id = topics[key >> _QUEUE_BITS], key & ((1 << _QUEUE_BITS) - 1)
            self.needed[topic] = max(self.needed.get(topic, 0), queue_id + 1)

    def _round_robin(
        self, topics: Sequence[str], topic_code: npt.NDArray[np.int32], counts: Int64s
    ) -> Int64s:
        ranks, rows = group_ranks(topic_code, len(topics))
        begin = np.array([self._next.get(topic, self._first) for topic in topics], np.int64)
        for topic, start, used, count in zip(
            topics, begin.tolist(), rows.tolist(), counts.tolist()
        ):
            self._next[topic] = start + used
            if used:
                self.needed[topic] = max(self.needed.get(topic, 0), count)
        return (begin[topic_code] + ranks) % counts[topic_code]
