"""What a member of a consumer group asks of the brokers of its queues."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Callable, TypeVar

from rmqnet.client.heartbeat_data import TAG
from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import (
    BrokerError,
    ClientError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Collection, Iterable

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.subscription import Subscription
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.route_table import BrokerAddress

logger = logging.getLogger(__name__)

_OFFSET_TIMEOUT_S = 5.0
_LOCK_TIMEOUT_S = 1.0
T = TypeVar("T")


class GroupBrokers:
    """Requests in the name of one group; its coroutines run in the client's event loop.

    Each raises what ``BrokerClient`` raises, and ClientError where no route names the broker. What
    only reads, and offsets of groups, are asked of a slave where the master cannot be reached.
    """

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self.group = group
        self.outages = client.outages
        self._first_commits: dict[tuple[str, str], asyncio.Event] = {}

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
        ask = partial(self._client.broker.consumer_ids, group=self.group)
        return await _first_answer((addresses[each] for each in sorted(addresses)), ask)

    async def check(self, subscription: Subscription) -> None:
        """Have a broker look at an SQL expression: it passes all that it does not understand."""
        route = await self._client.route(subscription.topic)
        addresses = [each for broker in route.brokers.values() for each in broker.values()]
        if subscription.expression_type != TAG and addresses:
            ask = partial(
                self._client.broker.check_client_config,
                client_id=self.client_id,
                group=self.group,
                subscription=subscription.data(),
            )
            await _first_answer(addresses, ask)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the end of a queue."""
        return await self._ask(queue, partial(self._client.broker.max_offset, queue=queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's first message."""
        return await self._ask(queue, partial(self._client.broker.min_offset, queue=queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a time."""
        search = self._client.broker.search_offset
        return await self._ask(queue, partial(search, queue=queue, timestamp=timestamp_ms))

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the offset that the broker has noted; None if it has none.

        With this and `write`, brokers are an ``OffsetKeeper``.
        """
        ask = partial(
            self._client.broker.query_consumer_offset,
            group=self.group,
            queue=queue,
            timeout_s=_OFFSET_TIMEOUT_S,
        )
        return await self._ask(queue, ask)

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        """Have the brokers note offsets; unless it is to wait, they answer a topic's first only."""
        by_broker: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for queue, offset in offsets.items():
            by_broker[queue.broker_name][queue] = offset
        await asyncio.gather(*(self._write_all(each, wait=wait) for each in by_broker.values()))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Have the broker note an offset, and wait until it has."""
        ask = partial(
            self._client.broker.update_consumer_offset,
            group=self.group,
            queue=queue,
            offset=offset,
            timeout_s=_OFFSET_TIMEOUT_S,
        )
        async with self._after_first_commit(queue):
            await self._ask(queue, ask)

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

    async def _ask(self, queue: MessageQueue, ask: Callable[[str], Awaitable[T]]) -> T:
        """Ask the queue's master; a slave where it is away."""
        await self.find(queue, only_this_broker=False)
        addresses = self._client.addresses_of(queue.broker_name)
        return await _first_answer((each.address for each in addresses), ask)

    async def _write_all(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        """Have one broker note offsets; a failure is logged."""
        try:
            for queue, offset in offsets.items():
                address = (await self.find(queue, only_this_broker=False)).address
                async with self._after_first_commit(queue) as is_first:
                    await self._client.broker.update_consumer_offset(
                        address, self.group, queue, offset, oneway=not (wait or is_first)
                    )
        except (RemotingError, BrokerError, ClientError) as err:
            text = "group %s: %d offsets are not noted: %s"
            self.outages.report(logger, err, text, self.group, len(offsets), err)

    @asynccontextmanager
    async def _after_first_commit(self, queue: MessageQueue) -> AsyncIterator[bool]:
        """Wait until a broker has noted the first offset of a topic; yield whether this is it.

        RocketMQ's ``ConsumerOffsetManager`` creates a group's table for a topic without a lock, and
        can lose an offset if the first two arrive concurrently.
        """
        place = queue.broker_name, queue.topic
        first = self._first_commits.get(place)
        if first is not None:
            await first.wait()
            yield False
            return
        self._first_commits[place] = first = asyncio.Event()
        try:
            yield True
        except BaseException:
            del self._first_commits[place]  # the next is the first
            raise
        finally:
            first.set()


async def _first_answer(addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> T:
    """Return what the first broker that can be reached answers."""
    error: RemotingError | None = None
    for address in addresses:
        try:
            return await ask(address)
        except (RemotingConnectError, RemotingTimeoutError) as err:
            error = error or err  # the master's: it is what should be mended
    raise error or ClientError("no broker is up")
