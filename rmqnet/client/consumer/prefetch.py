# SPDX-License-Identifier: Apache-2.0
"""Reading a queue ahead of `PullConsumer.poll`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Callable

from rmqnet.client.consumer.queue_puller import SUBSCRIPTION_FLAG, SUSPEND_FLAG, QueueSource
from rmqnet.client.send_result import PullStatus
from rmqnet.errors import BrokerError, ClientError, RemotingError
from rmqnet.remoting.headers import PullMessageRequestHeader

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.consumer.consumer_options import PullConsumerOptions
    from rmqnet.client.consumer.group_brokers import GroupBrokers
    from rmqnet.client.consumer.subscription import Subscription
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.send_result import PullResult
    from store_core.message import Message

logger = logging.getLogger(__name__)

_SUSPEND_MS = 20_000


class QueuePrefetch:
    """Messages of one queue that wait for `PullConsumer.poll`, and the task that pulls more.

    Parameters
    ----------
    subscription
        Filter for the messages of the topic.
    """

    def __init__(
        self,
        *,
        client: ClientInstance,
        brokers: GroupBrokers,
        options: PullConsumerOptions,
        subscription: Subscription,
        queue: MessageQueue,
        changed: threading.Condition,
        is_sought: bool = False,
    ) -> None:
        self.queue = queue
        self.is_sought = is_sought
        self.paused = False
        self._brokers = brokers
        self._options = options
        self._subscription = subscription
        self._changed = changed
        self._source = QueueSource(client, brokers, queue)
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._next_offset: int | None = None
        self._is_closed = False
        self._room = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def position(self) -> int | None:
        """Offset of the next message to take; None if the start is not known yet.

        The caller holds ``changed``.
        """
        return self._messages[0].queue_offset if self._messages else self._next_offset

    def take(self, count: int) -> list[Message]:
        """Remove and return messages; the caller holds ``changed``."""
        messages = self._messages
        taken = [messages.popleft() for _ in range(min(count, len(messages)))]
        self._bytes -= sum(len(each.body) for each in taken)
        if taken and not self._is_full():
            self._loop.call_soon_threadsafe(self._room.set)
        return taken

    def close(self) -> None:
        """Discard the messages and stop; the caller holds ``changed``."""
        self._is_closed = True
        self._messages.clear()

    async def run(self, begin: Callable[[], Awaitable[int]]) -> None:
        """Pull until cancelled or closed."""
        await self._trying(self._find_begin, begin)
        while not self._is_closed:
            self._room.clear()
            if self._is_full():
                await self._room.wait()
            else:
                await self._trying(self._pull)

    async def _trying(self, work: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Retry some work until it succeeds."""
        pause_s = self._options.pull_retry_delay_ms / 1000
        while not self._is_closed:
            try:
                await work(*arguments)
            except (RemotingError, BrokerError, ClientError) as err:
                text = "%s: %s; retrying every %.1f s"
                self._brokers.outages.report(logger, err, text, self.queue, err, pause_s)
                await asyncio.sleep(pause_s)
            else:
                return

    async def _find_begin(self, begin: Callable[[], Awaitable[int]]) -> None:
        offset = await begin()
        with self._changed:
            self._next_offset = offset
            self._changed.notify_all()

    async def _pull(self) -> None:
        asked = self._next_offset or 0
        result = await self._source.pull(self._header)
        messages: list[Message] = []
        if result.status is PullStatus.FOUND:
            messages = self._subscription.wanted(self._source.messages(result, asked))
        elif result.status is PullStatus.OFFSET_ILLEGAL:
            self._warn_of_move(result, asked)
        with self._changed:
            if self._is_closed:
                return
            self._messages.extend(messages)
            self._bytes += sum(len(each.body) for each in messages)
            self._next_offset = result.next_begin_offset
            self._changed.notify_all()

    def _is_full(self) -> bool:
        options = self._options
        return (
            len(self._messages) > options.read_ahead_messages
            or self._bytes > options.read_ahead_bytes
        )

    def _warn_of_move(self, result: PullResult, asked: int) -> None:
        logger.warning(
            "%s has no offset %d (it has %d to %d): continuing at %d",
            self.queue,
            asked,
            result.min_offset,
            result.max_offset,
            result.next_begin_offset,
        )

    def _header(self, is_slave: bool) -> PullMessageRequestHeader:
        del is_slave
        return PullMessageRequestHeader(
            consumer_group=self._brokers.group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self._next_offset or 0,
            max_msg_nums=self._options.pull_batch_size,
            sys_flag=SUSPEND_FLAG | SUBSCRIPTION_FLAG,
            commit_offset=0,
            suspend_timeout_millis=_SUSPEND_MS,
            subscription=self._subscription.expression,
            sub_version=0,
            expression_type=self._subscription.expression_type,
            max_msg_bytes=self._options.pull_batch_size_bytes,
            bname=self.queue.broker_name,
        )
