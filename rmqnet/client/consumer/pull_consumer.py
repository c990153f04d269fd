# SPDX-License-Identifier: Apache-2.0
"""A consumer from which the application requests messages."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Union

from rmqnet.client.client_config import ClientConfig
from rmqnet.client.client_instance import ClientInstance
from rmqnet.client.consumer.consumer_options import PullConsumerOptions
from rmqnet.client.consumer.group_brokers import GroupBrokers
from rmqnet.client.consumer.offset_store import OffsetStore
from rmqnet.client.consumer.prefetch import QueuePrefetch
from rmqnet.client.consumer.start_offset import StartOffsets
from rmqnet.client.consumer.subscription import SQL92, Subscription
from rmqnet.client.heartbeat_data import TAG, ConsumerData, ConsumeType
from rmqnet.client.names import check_consumer_group
from rmqnet.errors import BrokerError, ClientError, RemotingError, RemotingTimeoutError
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Collection, Mapping
    from typing import Callable

    from rmqnet.client.message_queue import MessageQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)

Client = Union[ClientInstance, ClientConfig, str]

_SUBSCRIBE_ALL = "*"
_HALF_AN_HOUR_MS = 30 * 60_000
_POSITION_TIMEOUT_S = 10.0


class PullConsumer(ShuttingDown):
    """Reads assigned queues from chosen offsets and commits the consumer's progress.

    It pulls from all assigned queues concurrently, ahead of `poll`. It does not divide queues with
    other members of its group. Use a group without `PushConsumer` members, which would count it as
    a member. Methods may be called in any thread and block while they wait for brokers.

    Parameters
    ----------
    group
        Name of the group under which offsets are committed.
    client
        Name server addresses (``host:port;host:port``), a `ClientConfig`, or a `ClientInstance`.
        The caller owns such an instance and may share it with producers and with consumers of
        other groups.
    options
        Settings that seldom change.

    Examples
    --------
    >>> with PullConsumer("audit", "localhost:9876") as consumer:  # doctest: +SKIP
    ...     consumer.assign(consumer.queues_of("orders"))
    ...     consumer.seek_to_begin()
    ...     while messages := consumer.poll(100, timeout_s=5):
    ...         print(len(messages))
    ...         consumer.commit()
    """

    def __init__(
        self,
        group: str,
        client: Client,
        *,
        options: PullConsumerOptions | None = None,
    ) -> None:
        self.group = check_consumer_group(group)
        self.options = options or PullConsumerOptions()
        self._owns_client = not isinstance(client, ClientInstance)
        self._client = client if isinstance(client, ClientInstance) else ClientInstance(client)
        self._brokers = GroupBrokers(self._client, self.group)
        self._guard = threading.Lock()
        self._changed = threading.Condition()
        self._assigning = threading.Lock()
        self._reads: dict[MessageQueue, QueuePrefetch] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._is_started = self._is_shut_down = False
        self._turn = 0
        timestamp_ms = self.options.consume_timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000 - _HALF_AN_HOUR_MS
        self._starts = StartOffsets(
            OffsetStore(self._brokers), self._brokers, self.options.consume_from_where, timestamp_ms
        )

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._client.client_id

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        return sorted(self._reads)

    def start(self) -> PullConsumer:
        """Connect to the cluster.

        Raises
        ------
        ClientError
            The consumer was started or shut down before.
        """
        with self._guard:
            if self._is_started or self._is_shut_down:
                state = "was shut down" if self._is_shut_down else "is already running"
                raise ClientError(f"consumer of group {self.group} {state}: create a new one")
            self._is_started = True
        try:
            self._client.start()
            self._client.call(self._client.register_consumer(self.group, self))
        except BaseException:
            self.shutdown()
            raise
        return self

    def shutdown(self) -> None:
        """Stop without committing offsets. A second call does nothing."""
        with self._guard:
            was_running = self._is_started and not self._is_shut_down
            self._is_shut_down = True
        if not was_running:
            return
        try:
            self._client.call(self._leave())
        except (RemotingError, BrokerError, ClientError) as err:
            logger.warning("group %s: not shut down cleanly: %s", self.group, err)
        finally:
            if self._owns_client:
                self._client.shutdown()

    # Queues.

    def queues_of(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic, sorted.

        Raises
        ------
        TopicNotFoundError
            No name server knows the topic.
        """
        return self._client.call(self._client.refresh_route(topic)).subscribe_queues()

    def assign(
        self,
        queues: Collection[MessageQueue],
        tags: str = _SUBSCRIBE_ALL,
        *,
        sql: str | None = None,
    ) -> None:
        """Read only these queues from now on.

        Queues that were assigned before with the same filter go on. New queues start at the
        group's committed offset, or as the options say if there is none.

        Parameters
        ----------
        queues
            Queues of any topics.
        tags
            Tags separated by ``||``; ``*`` for all messages.
        sql
            SQL92 expression over properties; replaces ``tags``.

        Raises
        ------
        BrokerError
            A broker does not understand the SQL expression.
        """
        kind, expression = (TAG, tags) if sql is None else (SQL92, sql)
        topics = {queue.topic for queue in queues}
        subscriptions = {topic: self._subscription(topic, expression, kind) for topic in topics}
        begins = {queue: partial(self._starts.start_offset, queue) for queue in queues}
        with self._assigning:
            self._client.call(self._assign(begins, subscriptions))

    # Positions.

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at an offset; `poll` returns no messages pulled before."""
        self._seek({queue: partial(_known, offset)})

    def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Continue at the first messages of these queues, or of all if none are given."""
        self._seek({each: partial(self._brokers.min_offset, each) for each in self._chosen(queues)})

    def seek_to_end(self, *queues: MessageQueue) -> None:
        """Continue at the current ends of these queues, or of all if none are given."""
        ends = {each: self.end_offset(each) for each in self._chosen(queues)}
        self._seek({queue: partial(_known, offset) for queue, offset in ends.items()})

    def seek_to_time(self, timestamp_ms: int, *queues: MessageQueue) -> None:
        """Continue at the first messages stored at or after a time (ms)."""
        search = self._brokers.search_offset
        self._seek({each: partial(search, each, timestamp_ms) for each in self._chosen(queues)})

    def position(self, queue: MessageQueue) -> int:
        """Return the offset at which `poll` continues.

        Raises
        ------
        RemotingTimeoutError
            The offset is not known yet because brokers do not answer.
        """
        read = self._read(queue)
        with self._changed:
            known = self._changed.wait_for(lambda: read.position is not None, _POSITION_TIMEOUT_S)
            position = read.position
        if not known or position is None:
            raise RemotingTimeoutError(f"it is not known yet where to begin in {queue}")
        return position

    def begin_offset(self, queue: MessageQueue) -> int:
        """Return the offset of a queue's first message."""
        return self._client.call(self._brokers.min_offset(queue))

    def end_offset(self, queue: MessageQueue) -> int:
        """Return the end of a queue, which is the offset of its next message."""
        return self._client.call(self._brokers.max_offset(queue))

    def offset_of_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset of a queue stored at or after a time (ms)."""
        return self._client.call(self._brokers.search_offset(queue, timestamp_ms))

    # Messages.

    def poll(self, max_messages: int = 32, timeout_s: float = 5.0) -> list[Message]:
        """Return messages of any assigned queues that are not paused.

        Messages of a queue are in order; the queues take turns.

        Parameters
        ----------
        max_messages
            Most messages.
        timeout_s
            Longest wait for the first message.

        Returns
        -------
        messages
            Empty if none came in time.
        """
        self._check_running()
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                messages = self._take(max_messages)
                left_s = deadline - time.monotonic()
                if messages or left_s <= 0 or self._is_shut_down:
                    return messages
                self._changed.wait(left_s)

    def pause(self, *queues: MessageQueue) -> None:
        """Exclude these queues (all if none are given) from `poll` until `resume`."""
        self._set_paused(queues, paused=True)

    def resume(self, *queues: MessageQueue) -> None:
        """Include these queues (all if none are given) in `poll` again."""
        self._set_paused(queues, paused=False)

    def commit(self, *queues: MessageQueue) -> None:
        """Commit the messages that `poll` returned from these queues (all if none are given).

        Raises
        ------
        RemotingError, BrokerError, ClientError
            A broker did not accept the commit.
        """
        reads = [self._read(queue) for queue in self._chosen(queues)]
        for read in reads:
            if read.is_sought:
                self.position(read.queue)
        with self._changed:  # so that messages and the offset after them match
            positions = {read.queue: read.position for read in reads}
        known = {queue: offset for queue, offset in positions.items() if offset is not None}
        self._client.call(self._commit(known))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset; None if the broker has none."""
        return self._client.call(self._brokers.read(queue))

    # Called by the client.

    def heartbeat_data(self) -> ConsumerData:
        """Return the data for heartbeats."""
        return ConsumerData(
            self.group,
            tuple(each.data() for each in list(self._subscriptions.values())),
            ConsumeType.CONSUME_ACTIVELY,
            consume_from_where=self.options.consume_from_where,
        )

    def on_consumer_ids_changed(self) -> None:
        """Do nothing: the application assigns the queues."""

    def on_connection_closed(self, address: str) -> None:
        """Do nothing: failed pulls are retried."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets in assigned queues."""
        assigned = {
            queue: offset
            for queue, offset in offsets.items()
            if queue.topic == topic and queue in self._reads
        }
        logger.warning("group %s: offsets of topic %s are reset: %s", self.group, topic, assigned)
        self._seek({queue: partial(_known, offset) for queue, offset in assigned.items()})

    def consumer_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return the positions in the assigned queues of a topic."""
        with self._changed:
            positions = {queue: read.position for queue, read in self._reads.items()}
        return {
            queue: offset
            for queue, offset in positions.items()
            if queue.topic == topic and offset is not None
        }

    def running_info(self) -> dict[str, Any]:
        """Return the fields of RocketMQ's ``ConsumerRunningInfo`` that apply to a pull consumer."""
        data = self.heartbeat_data()
        return {
            "properties": {"PROP_CONSUME_TYPE": data.consume_type.value},
            "subscriptionSet": [each.to_json() for each in data.subscriptions],
            "mqTable": {},
            "statusTable": {},
        }

    def consume_directly(self, message: Message, broker_name: str) -> dict[str, Any]:
        """Raise ClientError: there is no listener."""
        raise ClientError(f"group {self.group} has no listener: its consumer pulls messages itself")

    # Inside.

    def _subscription(self, topic: str, expression: str, kind: str) -> Subscription:
        known = self._subscriptions.get(topic)
        if known is not None and (known.expression, known.expression_type) == (expression, kind):
            return known
        return Subscription(topic, expression, kind, time.time_ns() // 1_000_000)

    async def _assign(
        self,
        begins: Mapping[MessageQueue, Callable[[], Awaitable[int]]],
        subscriptions: dict[str, Subscription],
    ) -> None:
        for subscription in subscriptions.values():
            await self._brokers.check(subscription)
        unchanged = {
            queue
            for queue in self._reads.keys() & begins.keys()
            if self._subscriptions.get(queue.topic) is subscriptions[queue.topic]
        }
        self._subscriptions = subscriptions
        await self._client.send_heartbeats()
        self._check_running()  # again: a shared client keeps running after this consumer's shutdown
        self._drop(self._reads.keys() - unchanged)
        for queue, begin in begins.items():
            if queue not in unchanged:
                self._begin(queue, begin)

    async def _leave(self) -> None:
        self._drop(list(self._reads))
        if self._client.has_consumer(self.group, self):
            await self._client.unregister_consumer(self.group)

    def _seek(self, begins: Mapping[MessageQueue, Callable[[], Awaitable[int]]]) -> None:
        with self._assigning:
            for queue in begins:
                self._read(queue)
            self._client.call(self._begin_anew(begins))

    async def _begin_anew(
        self, begins: Mapping[MessageQueue, Callable[[], Awaitable[int]]]
    ) -> None:
        self._check_running()
        for queue, begin in begins.items():
            was_paused = self._reads[queue].paused
            self._drop([queue])
            self._begin(queue, begin, is_sought=True)
            self._reads[queue].paused = was_paused

    def _begin(
        self, queue: MessageQueue, begin: Callable[[], Awaitable[int]], *, is_sought: bool = False
    ) -> None:
        read = QueuePrefetch(
            client=self._client,
            brokers=self._brokers,
            options=self.options,
            subscription=self._subscriptions[queue.topic],
            queue=queue,
            changed=self._changed,
            is_sought=is_sought,
        )
        with self._changed:
            self._reads[queue] = read
        self._tasks[queue] = asyncio.ensure_future(read.run(begin))

    def _drop(self, queues: Collection[MessageQueue]) -> None:
        with self._changed:
            for queue in list(queues):
                self._reads.pop(queue).close()
                self._tasks.pop(queue).cancel()
            self._changed.notify_all()

    def _take(self, count: int) -> list[Message]:
        """Take messages, starting one queue further with each call."""
        reads = list(self._reads.values())
        messages: list[Message] = []
        for step in range(len(reads)):
            if len(messages) >= count:
                break
            read = reads[(self._turn + step) % len(reads)]
            if not read.paused:
                messages += read.take(count - len(messages))
        self._turn += 1
        return messages

    def _chosen(self, queues: tuple[MessageQueue, ...]) -> list[MessageQueue]:
        self._check_running()
        return list(queues) or self.assignment

    def _read(self, queue: MessageQueue) -> QueuePrefetch:
        self._check_running()
        try:
            return self._reads[queue]
        except KeyError:
            raise ClientError(f"{queue} is not assigned to this consumer") from None

    def _set_paused(self, queues: tuple[MessageQueue, ...], *, paused: bool) -> None:
        reads = [self._read(queue) for queue in self._chosen(queues)]
        with self._changed:
            for read in reads:
                read.paused = paused
            self._changed.notify_all()

    async def _commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        await asyncio.gather(*(self._brokers.commit(*each) for each in offsets.items()))

    def _check_running(self) -> None:
        if not self._is_started or self._is_shut_down:
            state = "was shut down" if self._is_shut_down else "is not started"
            raise ClientError(f"consumer of group {self.group} {state}")


async def _known(offset: int) -> int:
    return offset
