# SPDX-License-Identifier: Apache-2.0
"""Continuous pulling from one queue while this member owns it.

Source: RocketMQ ``DefaultMQPushConsumerImpl.pullMessage``, ``PullAPIWrapper`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Callable

from rmqnet.client.received_messages import messages_from_body
from rmqnet.client.send_result import PullStatus
from rmqnet.client.topic_route import MASTER_ID
from rmqnet.errors import BrokerError, ClientError, RemotingConnectError, RemotingError
from rmqnet.remoting.codes import ResponseCode
from rmqnet.remoting.headers import PullMessageRequestHeader
from store_core.layout import INNER_BATCH_FLAG
from store_core.topics import RETRY_PREFIX, RETRY_TOPIC

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.consume_statistics import ConsumeStatistics
    from rmqnet.client.consumer.consumer_options import PushConsumerOptions
    from rmqnet.client.consumer.consumption import Consumption
    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.consumer.offset_store import OffsetStore
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from rmqnet.client.consumer.queue_locks import QueueLocks
    from rmqnet.client.consumer.subscription import Subscription
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.route_table import BrokerAddress
    from rmqnet.client.send_result import PullResult
    from store_core.message import Message

logger = logging.getLogger(__name__)
SUSPEND_MS = 15_000
"""Longest time that the broker may wait for a message before it answers without one."""
_BROKER_BUSY_S = 0.02
_GROUP_UNKNOWN = {
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_LATEST,
}
"""Codes of a broker that was restarted or does not know the newest subscription."""
_ANNOUNCED_S = 1.0
COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG = 1, 2, 4
"""Bits of a pull's sysFlag (``PullSysFlag``)."""
PULL_TIMEOUT_S = 30.0
"""Timeout of a pull, longer than any broker waits for a message."""


@dataclass(frozen=True)
class PullSide:
    """The parts that the pullers of a member share.

    Parameters
    ----------
    not_paused
        Set unless the consumer is suspended.
    locks
        Locks of orderly consumers that divide queues; None for other consumers.
    """

    client: ClientInstance
    brokers: GroupBrokers
    options: PushConsumerOptions
    offsets: OffsetStore
    consumption: Consumption
    statistics: ConsumeStatistics
    subscriptions: dict[str, Subscription]
    not_paused: asyncio.Event
    offset_moved: Callable[[ProcessQueue, int], Awaitable[None]]
    announce: Callable[[], Awaitable[None]]
    locks: QueueLocks | None


class QueuePuller:
    """Pulls from a queue, one pull at a time; the broker may hold it until messages arrive."""

    def __init__(self, side: PullSide, process_queue: ProcessQueue, next_offset: int) -> None:
        self._side = side
        self._process_queue = process_queue
        self._next_offset = next_offset
        self._source = QueueSource(side.client, side.brokers, process_queue.queue)

    async def run(self) -> None:
        """Pull until the queue is dropped or this is cancelled."""
        queue = self._process_queue.queue
        logger.info("pulling %s from offset %d on", queue, self._next_offset)
        while not self._process_queue.dropped:
            pause_s = await self._step()
            if pause_s > 0:
                await asyncio.sleep(pause_s)

    async def _step(self) -> float:
        """Wait for room, lock or pull; return the pause after it in seconds."""
        await self._side.not_paused.wait()
        if await self._wait_for_room() or self._process_queue.dropped:
            return 0.0
        if self._lacks_lock() and not await self._lock():
            return self._retry_s
        try:
            pause_s = await self._pull()
        except (RemotingError, BrokerError, ClientError) as err:
            return await self._failed(err)
        return pause_s

    async def _failed(self, err: Exception) -> float:
        """Report a failed pull and return the pause before the next one in seconds."""
        code = err.code if isinstance(err, BrokerError) else None
        if code == ResponseCode.FLOW_CONTROL:
            return _BROKER_BUSY_S
        self._side.client.outages.report(
            logger,
            err,
            "%s at offset %d: %s; retrying every %.1f s",
            self._process_queue.queue,
            self._next_offset,
            err,
            self._retry_s,
        )
        if code in _GROUP_UNKNOWN:
            await self._side.announce()
            return min(self._retry_s, _ANNOUNCED_S)
        return self._retry_s

    @property
    def _retry_s(self) -> float:
        return self._side.options.pull_retry_delay_ms / 1000

    async def _wait_for_room(self) -> bool:
        """Wait while a cache limit is exceeded; return whether it was exceeded."""
        process_queue = self._process_queue
        if process_queue.fullness() is None:
            return False
        loop, room = asyncio.get_running_loop(), asyncio.Event()
        if process_queue.when_room(partial(loop.call_soon_threadsafe, room.set)):
            logger.debug("%s: %s", process_queue.queue, process_queue.fullness())
            await room.wait()
        return True

    def _lacks_lock(self) -> bool:
        """Return whether another member may be consuming the queue."""
        return self._side.locks is not None and not self._process_queue.locked

    async def _lock(self) -> bool:
        locks = self._side.locks
        return locks is None or await locks.lock(self._process_queue)

    async def _pull(self) -> float:
        queue = self._process_queue.queue
        subscription = self._side.subscriptions.get(queue.topic)
        if subscription is None:
            return self._retry_s
        self._process_queue.last_pull_ms = time.time_ns() // 1_000_000
        begun = time.monotonic()
        result = await self._source.pull(partial(self._header, subscription))
        if self._process_queue.dropped:
            return 0.0
        if result.status is PullStatus.FOUND:
            return self._found(result, subscription, begun)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._moved(result)
        else:
            self._go_on(result.next_begin_offset)
        return 0.0

    def _found(self, result: PullResult, subscription: Subscription, begun: float) -> float:
        process_queue, side = self._process_queue, self._side
        queue = process_queue.queue
        messages = self._source.messages(result, self._next_offset)
        side.statistics.pulled(queue.topic, len(messages), time.monotonic() - begun)
        messages = subscription.wanted(messages)
        if not messages:
            self._go_on(result.next_begin_offset)
            return 0.0
        if queue.topic.startswith(RETRY_PREFIX):
            _restore_topics(messages, queue)
        self._next_offset = result.next_begin_offset
        needs_consumer = process_queue.put(messages)
        side.consumption.submit(process_queue, messages, needs_consumer=needs_consumer)
        return side.options.pull_interval_ms / 1000

    def _go_on(self, next_offset: int) -> None:
        """Skip offsets without messages for this group; commit the skip if no messages wait."""
        self._next_offset = next_offset
        if self._process_queue.count == 0:
            self._side.offsets.update(self._process_queue.queue, next_offset, only_forward=True)

    async def _moved(self, result: PullResult) -> None:
        logger.warning(
            "%s has no offset %d (it has %d to %d)%s: continuing at %d",
            self._process_queue.queue,
            self._next_offset,
            result.min_offset,
            result.max_offset,
            f": {result.remark}" if result.remark else "",
            result.next_begin_offset,
        )
        await self._side.offset_moved(self._process_queue, result.next_begin_offset)

    def _header(self, subscription: Subscription, is_slave: bool) -> PullMessageRequestHeader:
        options, queue = self._side.options, self._process_queue.queue
        commit_offset = 0
        if not options.is_broadcasting:
            known = self._side.offsets.get(queue)
            commit_offset = -1 if known is None else known
        commits = commit_offset > 0 and not is_slave
        expression = subscription.expression if options.post_subscription_when_pull else None
        return PullMessageRequestHeader(
            consumer_group=self._side.brokers.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=self._next_offset,
            max_msg_nums=options.pull_batch_size,
            sys_flag=SUSPEND_FLAG
            | (COMMIT_FLAG if commits else 0)
            | (0 if expression is None else SUBSCRIPTION_FLAG),
            commit_offset=commit_offset,
            suspend_timeout_millis=SUSPEND_MS,
            subscription=expression,
            sub_version=subscription.version,
            expression_type=subscription.expression_type,
            max_msg_bytes=options.pull_batch_size_bytes,
            bname=queue.broker_name,
        )


def _restore_topics(messages: list[Message], queue: MessageQueue) -> None:
    """Give retried messages the topic that they were first sent to."""
    for message in messages:
        if message.topic == queue.topic:
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)


class QueueSource:
    """Pulls from a queue's master or slaves. Runs in the event loop."""

    def __init__(self, client: ClientInstance, brokers: GroupBrokers, queue: MessageQueue) -> None:
        self._client = client
        self._brokers = brokers
        self._queue = queue
        self._broker_id = MASTER_ID
        self._address = ""
        self._asked_offset = 0

    async def pull(self, header: Callable[[bool], PullMessageRequestHeader]) -> PullResult:
        """Pull once.

        Raises
        ------
        RemotingError, BrokerError, ClientError
            The broker is unknown, cannot be reached, or refuses.
        """
        broker = await self._brokers.find(self._queue, self._broker_id, only_this_broker=False)
        try:
            return await self._pull(broker, header)
        except RemotingConnectError:
            for other in self._client.addresses_of(self._queue.broker_name):
                if other != broker:
                    with suppress(RemotingError, BrokerError):
                        result = await self._pull(other, header)
                        if self._leads_on(result):
                            return result
            raise

    async def _pull(
        self, broker: BrokerAddress, header: Callable[[bool], PullMessageRequestHeader]
    ) -> PullResult:
        request = header(broker.is_slave)
        self._address, self._asked_offset = broker.address, request.queue_offset
        result = await self._client.broker.pull(broker.address, request, PULL_TIMEOUT_S)
        self._broker_id = result.suggest_which_broker_id
        return result

    def _leads_on(self, result: PullResult) -> bool:
        """Return whether the answer of a replacement broker can be used.

        Its log may be incomplete, so an offset missing there may still exist; and at the end of a
        queue slaves answer immediately, while the caller should pause.
        """
        moved = result.status is PullStatus.OFFSET_ILLEGAL
        return not moved and result.next_begin_offset > self._asked_offset

    def messages(self, result: PullResult, asked_offset: int) -> list[Message]:
        """Return the messages of the last pull, from the requested offset on.

        Brokers return a whole inner batch even if the requested offset is inside it.

        Raises
        ------
        RemotingFormatError
            The messages are damaged; the text says where.
        """
        messages = messages_from_body(
            result.body,
            f"{self._queue.broker_name}@{self._address}",
            f"offset {asked_offset} of {self._queue}",
        )
        if messages and messages[0].sys_flag & INNER_BATCH_FLAG:
            return [each for each in messages if each.queue_offset >= asked_offset]
        return messages
