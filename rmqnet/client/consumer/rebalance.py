# SPDX-License-Identifier: Apache-2.0
"""Acquiring the queues assigned to this member and releasing the others.

Source: RocketMQ ``RebalanceImpl``, ``RebalancePushImpl``, ``RebalanceService`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from rmqnet.client.consumer.allocation import allocate
from rmqnet.client.consumer.process_queue import ProcessQueue
from rmqnet.errors import BrokerError, ClientError, RemotingError, TopicNotFoundError
from store_core.topics import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.consumer_options import PushConsumerOptions
    from rmqnet.client.consumer.consumption import Consumption
    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.consumer.offset_store import OffsetStore
    from rmqnet.client.consumer.queue_locks import QueueLocks
    from rmqnet.client.consumer.start_offset import StartOffsets
    from rmqnet.client.consumer.subscription import Subscription
    from rmqnet.client.message_queue import MessageQueue

logger = logging.getLogger(__name__)

_FORCED_UNLOCK_MS = 20_000
"""Time after the last lock renewal when a queue is released even if its listener runs."""
_LOCK_AGAIN_S = 0.5
_ANNOUNCE_AGAIN_S = 1.0


class _Held(NamedTuple):
    """A queue of this member and the task that pulls from it."""

    process_queue: ProcessQueue
    pulling: asyncio.Task[None]


class Taken(NamedTuple):
    """A newly acquired queue and its start offset."""

    process_queue: ProcessQueue
    offset: int


class Rebalancer:
    """Manages the queues of this member. Runs in the event loop.

    Parameters
    ----------
    locks
        Locks of orderly consumers that divide queues; None for other consumers.
    now_ms
        The time, milliseconds since the epoch.
    """

    def __init__(
        self,
        *,
        client: ClientInstance,
        brokers: GroupBrokers,
        options: PushConsumerOptions,
        subscriptions: dict[str, Subscription],
        offsets: OffsetStore,
        starts: StartOffsets,
        locks: QueueLocks | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._brokers = brokers
        self._options = options
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._starts = starts
        self._locks = locks
        self._now_ms = now_ms
        self._held: dict[MessageQueue, _Held] = {}
        self._one_at_a_time = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._looked = asyncio.Event()
        self._settled: set[str] = set()  # topics without queues that are waited for
        self._is_stopped = False
        self._announced_at = 0.0

    def connect(
        self,
        consumption: Consumption,
        pull: Callable[[ProcessQueue, int], Coroutine[Any, Any, None]],
    ) -> None:
        """Set the consumption and the pull function for acquired queues."""
        self._consumption = consumption
        self._pull = pull

    @property
    def process_queues(self) -> list[ProcessQueue]:
        """The process queues of this member."""
        return [held.process_queue for held in list(self._held.values())]

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues of this member."""
        return list(self._held)

    def rebalance_soon(self) -> None:
        """Request a rebalance as soon as possible."""
        self._wanted.set()

    async def wait_until_wanted(self, timeout_s: float) -> None:
        """Wait for `rebalance_soon` or the timeout."""
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), timeout_s)
        self._wanted.clear()

    async def rebalance(self) -> bool:
        """Acquire and release queues; return whether this member has all its assigned queues."""
        async with self._one_at_a_time:
            is_balanced = True
            topics = list(self._subscriptions)
            self._settled.intersection_update(topics)
            for topic in topics:
                is_balanced &= await self._rebalance_topic(topic)
            await self._drop_unsubscribed()
            self._looked.set()
            return is_balanced

    async def wait_for_queues(self, timeout_s: float) -> list[str]:
        """Wait until this member has its queues; return the topics with missing queues.

        An acquired queue has a known start offset. Queues locked by another member are not waited
        for, because its listener may run for long.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            missing = sorted(self._subscriptions.keys() - self._settled)
            left_s = deadline - loop.time()
            if not missing or left_s <= 0 or self._is_stopped:
                return missing
            self._looked.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._looked.wait(), left_s)

    async def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """Restart a queue at an offset that its broker returned."""
        await self.begin_anew({process_queue.queue: offset})

    async def begin_anew(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Discard the messages pulled from queues and restart them at other offsets."""
        async with self._one_at_a_time:
            for queue in offsets.keys() & self._held.keys():
                await self._begin_anew(self._held.pop(queue), offsets[queue])
        self.rebalance_soon()

    async def announce(self) -> None:
        """Send heartbeats with the group's subscriptions, at most once a second."""
        now = time.monotonic()
        if now - self._announced_at >= _ANNOUNCE_AGAIN_S:
            self._announced_at = now
            await self._client.send_heartbeats()

    def stop_pulling(self) -> None:
        """Cancel all pulls; pulled messages may still be consumed."""
        self._is_stopped = True
        self._looked.set()
        for held in self._held.values():
            held.pulling.cancel()

    def drop_all(self) -> None:
        """Drop all queues."""
        for held in self._held.values():
            held.process_queue.dropped = True
        self._held.clear()

    async def _rebalance_topic(self, topic: str) -> bool:
        try:
            own = await self._own_queues(topic)
        except TopicNotFoundError as err:
            if not topic.startswith(RETRY_PREFIX):  # brokers create them a little later
                self._client.outages.report(logger, err, "group %s: %s", self._brokers.group, err)
            self._settled.add(topic)
            return True
        except (RemotingError, BrokerError, ClientError) as err:
            text = "group %s, topic %s: %s"
            self._client.outages.report(logger, err, text, self._brokers.group, topic, err)
            self._settled.discard(topic)
            return False
        lacking = await self._take_over(topic, own)
        if lacking <= (set() if self._locks is None else self._locks.elsewhere):
            self._settled.add(topic)
        else:
            self._settled.discard(topic)
        return not lacking

    async def _own_queues(self, topic: str) -> set[MessageQueue]:
        queues = (await self._client.route(topic)).subscribe_queues()
        if self._options.is_broadcasting:
            return set(queues)
        members = await self._brokers.members(topic)
        return set(allocate(self._options.allocation, self._brokers.client_id, queues, members))

    async def _take_over(self, topic: str, own: set[MessageQueue]) -> set[MessageQueue]:
        """Acquire this member's queues and release others; return the queues still missing."""
        dropped = await self._drop_if(
            lambda queue: (
                queue.topic == topic and (queue not in own or self._held[queue].pulling.done())
            )
        )
        new = [queue for queue in own if queue not in self._held]
        taken = [each for each in await asyncio.gather(*map(self._take, new)) if each is not None]
        if dropped or taken:
            held = sorted(
                own.intersection(self._held) | {each.process_queue.queue for each in taken}
            )
            logger.info(
                "group %s now has these queues of topic %s: %s", self._brokers.group, topic, held
            )
            await self._announce(topic)
        for each in taken:
            pulling = asyncio.ensure_future(self._pull(*each))
            self._held[each.process_queue.queue] = _Held(each.process_queue, pulling)
        kept = {queue for queue, held in self._held.items() if not held.process_queue.dropped}
        return own - kept

    async def _announce(self, topic: str) -> None:
        """Send brokers a new version of the subscription before the first pull refers to it."""
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            subscription.version = max(subscription.version, self._now_ms())
            await self._client.send_heartbeats()

    async def _take(self, queue: MessageQueue) -> Taken | None:
        """Lock a queue if necessary and determine its start offset; None if that fails now."""
        orderly = self._consumption.orderly
        process_queue = ProcessQueue(queue, self._options.limits(orderly=orderly), self._now_ms)
        if self._locks is not None and not await self._locks.lock(process_queue):
            asyncio.get_running_loop().call_later(_LOCK_AGAIN_S, self.rebalance_soon)
            return None
        self._offsets.remove(queue)
        try:
            return Taken(process_queue, await self._starts.start_offset(queue))
        except (RemotingError, BrokerError, ClientError) as err:
            text = "it is not known where to begin in %s: %s"
            self._client.outages.report(logger, err, text, queue, err)
            if self._locks is not None:  # another member may try next
                await self._locks.unlock(queue)
            return None

    async def _drop_unsubscribed(self) -> None:
        await self._drop_if(lambda queue: queue.topic not in self._subscriptions)

    async def _drop_if(self, unwanted: Callable[[MessageQueue], bool]) -> bool:
        """Release queues; return whether any was released."""
        away = [held for queue, held in self._held.items() if unwanted(queue)]
        for each in away:
            each.process_queue.dropped = True
            each.pulling.cancel()
        # Concurrently: a broker that does not answer must not delay the queues of others.
        gone = await asyncio.gather(*(self._release(each.process_queue) for each in away))
        for each, is_gone in zip(away, gone):
            if is_gone:
                del self._held[each.process_queue.queue]
        return any(gone)

    async def _release(self, process_queue: ProcessQueue) -> bool:
        """Commit a queue's offset and release its lock; False if its listener still runs."""
        queue = process_queue.queue
        if self._locks is not None and self._consumption.is_consuming(process_queue):
            if self._now_ms() <= process_queue.last_lock_ms + _FORCED_UNLOCK_MS:
                process_queue.unlock_attempts += 1
                return False
            logger.warning("%s is given away although its listener still runs", queue)
        await self._offsets.persist([queue], wait=True)
        self._offsets.remove(queue)
        process_queue.clear()
        if self._locks is not None:
            process_queue.set_locked(False)
            await self._locks.unlock(queue)
        return True

    async def _begin_anew(self, held: _Held, offset: int) -> None:
        process_queue = held.process_queue
        queue = process_queue.queue
        process_queue.dropped = True
        process_queue.clear()
        process_queue.set_locked(False)
        if held.pulling is not asyncio.current_task():  # this task ends by itself
            held.pulling.cancel()
        self._offsets.update_and_freeze(queue, offset)
        await self._offsets.persist([queue], wait=True)
        self._offsets.remove(queue)
