# SPDX-License-Identifier: Apache-2.0
"""The offset at which a member starts a queue.

Source: RocketMQ ``RebalancePushImpl.computePullFromWhereWithException`` (release 5.3.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqnet.client.heartbeat_data import ConsumeFromWhere
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.consumer.offset_store import OffsetStore
    from rmqnet.client.message_queue import MessageQueue


class StartOffsets:
    """Starts at the group's committed offset, or as configured if a queue has none."""

    def __init__(
        self,
        offsets: OffsetStore,
        brokers: GroupBrokers,
        where: ConsumeFromWhere,
        timestamp_ms: int,
    ) -> None:
        self._offsets = offsets
        self._brokers = brokers
        self._where = where
        self._timestamp_ms = timestamp_ms

    async def start_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message to pull.

        Raises
        ------
        RemotingError, BrokerError, ClientError
            The offset cannot be determined now.
        """
        # Request the end first, so that a message that arrives between the answers is not missed.
        end = await self._brokers.max_offset(queue) if self._begins_at_end(queue) else None
        kept = await self._offsets.read(queue)
        if kept is not None:
            return kept
        if end is None:
            return await self._first_time(queue)
        # Set now, so that the next member that gets the queue starts here too.
        self._offsets.update(queue, end, only_forward=False)
        return end

    def _begins_at_end(self, queue: MessageQueue) -> bool:
        """Return whether a group that is new to a queue skips its existing messages."""
        if queue.topic.startswith(RETRY_PREFIX):
            return self._where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
        return self._where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    async def _first_time(self, queue: MessageQueue) -> int:
        is_retry = queue.topic.startswith(RETRY_PREFIX)
        if is_retry or self._where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0  # if it is deleted, the broker answers with another offset
        return await self._brokers.search_offset(queue, self._timestamp_ms)
