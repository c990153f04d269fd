# SPDX-License-Identifier: Apache-2.0
"""Requests of a consumer group's member to the brokers of its queues."""

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
    """Requests for one group; its coroutines run in the client's event loop.

    Each raises the errors of ``BrokerClient``, and ClientError if no route names the broker. If the
    master cannot be reached, reads and requests for group offsets go to a slave.
    """

    def __init__(self, client: ClientInstance, group: str) -> None:
        self._client = client
        self.group = group
        self.outages = client.outages
        self._first_commits: dict[tuple[str, str], asyncio.Event] = {}

    @property
    def client_id(self) -> str:
        """Client id of the member."""
        return self._client.client_id

    async def find(
        self, queue: MessageQueue, broker_id: int = MASTER_ID, *, only_this_broker: bool = True
    ) -> BrokerAddress:
        """Return the address of a queue's broker; ask name servers if no route names it."""
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
        """Return the client ids of the group's members, from any broker of a topic."""
        route = await self._client.route(topic)
        brokers = [addresses for addresses in route.brokers.values() if addresses]
        if not brokers:
            raise ClientError(f"no broker of topic {topic} is up")
        addresses = random.choice(brokers)
        ask = partial(self._client.broker.consumer_ids, group=self.group)
        return await _first_answer((addresses[each] for each in sorted(addresses)), ask)

    async def check(self, subscription: Subscription) -> None:
        """Have a broker check an SQL expression, as heartbeats do not report invalid ones."""
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
        """Return the group's committed offset; None if the broker has none.

        This and `write` implement ``OffsetKeeper``.
        """
        ask = partial(
            self._client.broker.query_consumer_offset,
            group=self.group,
            queue=queue,
            timeout_s=_OFFSET_TIMEOUT_S,
        )
        return await self._ask(queue, ask)

    async def write(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        """Commit offsets; without ``wait``, brokers answer only the first commit of a topic."""
        by_broker: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for queue, offset in offsets.items():
            by_broker[queue.broker_name][queue] = offset
        await asyncio.gather(*(self._write_all(each, wait=wait) for each in by_broker.values()))

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit an offset and wait for the broker's answer."""
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
        """Lock queues of one broker for this member; return the locked queues."""
        address = (await self.find(next(iter(queues)))).address
        return await self._client.broker.lock_queues(
            address, self.group, self.client_id, queues, timeout_s=_LOCK_TIMEOUT_S
        )

    async def unlock(self, queues: Collection[MessageQueue]) -> None:
        """Unlock queues of one broker."""
        address = (await self.find(next(iter(queues)))).address
        await self._client.broker.unlock_queues(address, self.group, self.client_id, queues)

    async def _ask(self, queue: MessageQueue, ask: Callable[[str], Awaitable[T]]) -> T:
        """Send a request to the queue's master, or to a slave if it cannot be reached."""
        await self.find(queue, only_this_broker=False)
        addresses = self._client.addresses_of(queue.broker_name)
        return await _first_answer((each.address for each in addresses), ask)

    async def _write_all(self, offsets: dict[MessageQueue, int], *, wait: bool) -> None:
        """Commit offsets on one broker; a failure is logged."""
        try:
            for queue, offset in offsets.items():
                address = (await self.find(queue, only_this_broker=False)).address
                async with self._after_first_commit(queue) as is_first:
                    await self._client.broker.update_consumer_offset(
                        address, self.group, queue, offset, oneway=not (wait or is_first)
                    )
        except (RemotingError, BrokerError, ClientError) as err:
            text = "group %s: cannot save %d offsets: %s"
            self.outages.report(logger, err, text, self.group, len(offsets), err)

    @asynccontextmanager
    async def _after_first_commit(self, queue: MessageQueue) -> AsyncIterator[bool]:
        """Wait for the first commit of a topic on a broker; yield whether this is the first.

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
            del self._first_commits[place]  # the next commit counts as the first
            raise
        finally:
            first.set()


async def _first_answer(addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> T:
    """Return the answer of the first broker that can be reached."""
    error: RemotingError | None = None
    for address in addresses:
        try:
            return await ask(address)
        except (RemotingConnectError, RemotingTimeoutError) as err:
            error = error or err  # the first address is the master's: report its failure
    raise error or ClientError("no broker is up")
