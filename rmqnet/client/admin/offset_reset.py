# SPDX-License-Identifier: Apache-2.0
"""Resetting the offsets of a consumer group.

5.x brokers store new offsets themselves and report them to members at their next pull
(``useServerSideResetOffset``). 4.x brokers send them to the connected members and refuse if there
are none; the offsets are then committed as a member would commit them. Source: RocketMQ
``AdminBrokerProcessor.resetOffset``, ``Broker2Client.resetOffset``,
``DefaultMQAdminExtImpl.resetOffsetByTimestampOld`` (releases 5.3.3 and 4.9.7).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rmqnet.client.broker_admin_client import LATEST_TIMESTAMP
from rmqnet.errors import BrokerError, ClientError
from rmqnet.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqnet.client.admin.cluster_brokers import ClusterBrokers
    from rmqnet.client.admin_results import QueueStats
    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.message_queue import MessageQueue

_OFFLINE = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
_SERVER_SIDE = "useServerSideResetOffset"


class OffsetReset:
    """Resets offsets of groups; runs in a client's event loop."""

    def __init__(self, instance: ClientInstance, brokers: ClusterBrokers) -> None:
        self._admin = instance.broker_admin
        self._broker = instance.broker
        self._instance = instance
        self._brokers = brokers

    async def reset(
        self, group: str, topic: str, timestamp: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        """Reset a group to a time in all queues of a topic and return the new offsets."""

        async def on_broker(address: str) -> dict[MessageQueue, int]:
            try:
                return await self._admin.reset_offsets(
                    address, group, topic, timestamp, force=force
                )
            except BrokerError as err:
                if err.code not in _OFFLINE or await self._is_online(address, group):
                    raise
            return await self._reset_offline(address, group, topic, timestamp, force=force)

        parts = await self._brokers.on_route(topic, on_broker)
        return dict(sorted(pair for part in parts for pair in part.items()))

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset in one queue."""
        await self._instance.route(queue.topic)
        address = self._instance.broker_address(queue.broker_name)
        # A broker without server-side reset ignores queue and offset and would reset all queues.
        if (await self._admin.broker_config(address)).get(_SERVER_SIDE) == "true":
            await self._admin.reset_offsets(
                address, group, queue.topic, 0, queue_id=queue.queue_id, offset=offset
            )
        elif await self._is_online(address, group):
            raise ClientError(
                f"members of group {group!r} are connected, and broker {queue.broker_name} lets "
                f"them keep their own offsets ({_SERVER_SIDE} is not true): stop them first"
            )
        else:
            await self._broker.update_consumer_offset(address, group, queue, offset)

    async def _is_online(self, address: str, group: str) -> bool:
        return (await self._admin.consumer_connections(address, group)).is_online

    async def _reset_offline(
        self, address: str, group: str, topic: str, timestamp: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        stats = await self._admin.topic_stats(address, topic)
        queues = sorted(stats)
        offsets = await asyncio.gather(
            *(self._offset_at(address, queue, stats[queue], timestamp) for queue in queues)
        )
        found = dict(zip(queues, offsets))
        if not force:
            found = await self._not_later(address, group, found)
        for queue, offset in found.items():
            await self._broker.update_consumer_offset(address, group, queue, offset)
        return found

    async def _offset_at(
        self, address: str, queue: MessageQueue, stats: QueueStats, timestamp: int
    ) -> int:
        # For a time after the last message, a 4.x broker returns the last message's offset.
        if timestamp == LATEST_TIMESTAMP or timestamp > stats.last_update_timestamp:
            return stats.max_offset
        return await self._broker.search_offset(address, queue, timestamp)

    async def _not_later(
        self, address: str, group: str, offsets: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        kept = {}
        for queue, offset in offsets.items():
            now = await self._broker.query_consumer_offset(address, group, queue)
            kept[queue] = offset if now is None else min(offset, now)
        return kept
