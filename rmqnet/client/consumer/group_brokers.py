"""What a member of a consumer group asks of the brokers of its queues."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import BrokerError, ClientError, RemotingError

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.route_table import BrokerAddress

logger = logging.getLogger(__name__)

_OFFSET_TIMEOUT_S = 5.0
_LOCK_TIMEOUT_S = 1.0


class GroupBrokers:
    """Requests in the name of one group; its coroutines run in the client's event loop.

    Each raises what ``BrokerClient`` raises, and ClientError where no route names the broker.

    Parameters
    ----------
    client
        The client whose group it is.
    group
        Name of the group.
    """

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self.group = group
        self._deaf: set[str] = set()  # brokers that did not note the last offsets

    @property
    def client_id(self) -> str:
        """The member's id."""
        return self._client.client_id

    async def find(
        self, queue: MessageQueue, broker_id: int = MASTER_ID, *, only_this_broker: bool = True
    ) -> BrokerAddress:
        """Return where a queue's broker is; name servers are asked if no route tells."""
        find = partial(
            self._client.find_broker,
            queue.broker_name,
            broker_id,
            only_this_broker=only_this_broker,
        )
        try:
            return find()
        except ClientError:
            await self._client.refresh_route(queue.topic)
        return find()

    async def members(self, topic: str) -> list[str]:
        """Return the client ids of the group's members; any broker of a topic knows them."""
        route = await self._client.route(topic)
        brokers = [addresses for addresses in route.brokers.values() if addresses]
        if not brokers:
            raise ClientError(f"no broker of topic {topic} is up")
        addresses = random.choice(brokers)
        address = addresses.get(MASTER_ID) or next(iter(addresses.values()))
        return await self._client.broker.consumer_ids(address, self.group)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the end of a queue."""
        return await self._client.broker.max_offset((await self.find(queue)).address, queue)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's first message."""
        return await self._client.broker.min_offset((await self.find(queue)).address, queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a time."""
        address = (await self.find(queue)).address
        return await self._client.broker.search_offset(address, queue, timestamp_ms)

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset that the broker has noted; None if it has none.

        With this and `write`, brokers are an ``OffsetKeeper``.
        """
        address = (await self.find(queue, only_this_broker=False)).address
        return await self._client.broker.query_consumer_offset(
            address, self.group, queue, timeout_s=_OFFSET_TIMEOUT_S
        )

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        """Have the brokers note offsets; unless it is to wait, they do not answer."""
        by_broker: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for queue, offset in offsets.items():
            by_broker[queue.broker_name][queue] = offset
        await asyncio.gather(*(self._write_all(each, wait=wait) for each in by_broker.values()))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Have the broker note an offset, and wait until it has."""
        address = (await self.find(queue, only_this_broker=False)).address
        await self._client.broker.update_consumer_offset(
            address, self.group, queue, offset, timeout_s=_OFFSET_TIMEOUT_S
        )

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Lock queues of one broker for this member; return those that it has now."""
        address = (await self.find(next(iter(queues)))).address
        return await self._client.broker.lock_queues(
            address, self.group, self.client_id, queues, timeout_s=_LOCK_TIMEOUT_S
        )

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Give queues of one broker away."""
        address = (await self.find(next(iter(queues)))).address
        await self._client.broker.unlock_queues(address, self.group, self.client_id, queues)

    async def _write_all(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        """Have one broker note offsets; a failure is logged, once until it has some again."""
        name = next(iter(offsets)).broker_name
        try:
            for queue, offset in offsets.items():
                address = (await self.find(queue, only_this_broker=False)).address
                await self._client.broker.update_consumer_offset(
                    address, self.group, queue, offset, oneway=not wait
                )
        except (RemotingError, BrokerError, ClientError) as err:
            level = logging.DEBUG if name in self._deaf else logging.WARNING
            logger.log(
                level, "group %s: %d offsets are not noted: %s", self.group, len(offsets), err
            )
            self._deaf.add(name)
        else:
            self._deaf.discard(name)
