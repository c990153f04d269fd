# SPDX-License-Identifier: Apache-2.0
"""A consumer that passes messages to the application's listener.

Source: RocketMQ ``DefaultMQPushConsumer``, ``DefaultMQPushConsumerImpl`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Union

from rmqnet.client.client_config import ClientConfig
from rmqnet.client.client_instance import ClientInstance
from rmqnet.client.consumer.consume_statistics import (
    SAMPLE_INTERVAL_S,
    ConsumeStatistics,
    running_info,
    running_properties,
)
from rmqnet.client.consumer.consumer_options import PushConsumerOptions
from rmqnet.client.consumer.consumption import (
    ENDLESS,
    ConcurrentConsumption,
    ListenerSide,
    OrderlyConsumption,
    directly_result,
)
from rmqnet.client.consumer.group_brokers import GroupBrokers
from rmqnet.client.consumer.listening import ConsumeContext, ListenerThreads, ask_listener
from rmqnet.client.consumer.offset_store import LocalFileOffsets, OffsetStore
from rmqnet.client.consumer.queue_locks import LOCK_INTERVAL_S, QueueLocks
from rmqnet.client.consumer.queue_puller import PullSide, QueuePuller
from rmqnet.client.consumer.rebalance import Rebalancer
from rmqnet.client.consumer.retry_sender import RetrySender
from rmqnet.client.consumer.start_offset import StartOffsets
from rmqnet.client.consumer.subscription import SQL92, Subscription
from rmqnet.client.heartbeat_data import TAG, ConsumerData, ConsumeType
from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.names import check_consumer_group
from rmqnet.errors import BrokerError, ClientError, RemotingError, TopicNotFoundError
from store_core.topics import RETRY_PREFIX, RETRY_TOPIC
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Mapping
    from concurrent.futures import Future

    from rmqnet.client.consumer.listening import MessageListener
    from rmqnet.client.consumer.process_queue import ProcessQueue
    from store_core.message import Message

logger = logging.getLogger(__name__)

Client = Union[ClientInstance, ClientConfig, str]

_DEFAULT_RETRIES = 16
_FIRST_PERSIST_S = 10.0
_FIRST_LOCK_S = 1.0
_UNBALANCED_S = 1.0
_FIRST_QUEUES_S = 10.0
_HALF_AN_HOUR_MS = 30 * 60_000
_SUBSCRIBE_ALL = "*"


class PushConsumer(ShuttingDown):
    """Member of a consumer group: pulls messages and passes them to a listener.

    Delivery is at least once: messages that were not consumed when the process, a broker or the
    queue's assignment to this member ended are delivered again, possibly to another member.

    Parameters
    ----------
    group
        Name of the group. All its members must have the same subscriptions and allocation.
    client
        Name server addresses (``host:port;host:port``), a `ClientConfig`, or a `ClientInstance`.
        The caller owns such an instance and may share it with producers and with consumers of
        other groups; the member uses its client id: see ``own_instance_name`` there.
    listener
        Called in threads of the consumer with a list of messages and a `ConsumeContext`. It
        returns None or True if it has consumed the messages; it returns False or raises to have
        them retried. For a concurrent listener the broker redelivers them later, up to
        ``max_reconsume_times`` times, and then moves them to topic ``%DLQ%group``; an orderly
        one gets them again soon, while the queue waits. Broadcasting groups do not retry.
    orderly
        Pass the messages of a queue to the listener in order, whichever member has the queue.
    options
        Settings that seldom change.

    Examples
    --------
    >>> def listener(messages, context):
    ...     for message in messages:
    ...         print(message.topic, message.body)
    >>> with PushConsumer("billing", "localhost:9876", listener) as consumer:  # doctest: +SKIP
    ...     consumer.subscribe("orders", "paid || cancelled")
    ...     time.sleep(60)
    """

    def __init__(
        self,
        group: str,
        client: Client,
        listener: MessageListener,
        *,
        orderly: bool = False,
        options: PushConsumerOptions | None = None,
    ) -> None:
        self.group = check_consumer_group(group)
        self.options = options or PushConsumerOptions()
        self._owns_client = not isinstance(client, ClientInstance)
        self._client = (
            client
            if isinstance(client, ClientInstance)
            else ClientInstance(client, own_instance_name=not self.options.is_broadcasting)
        )
        self._listener = listener
        self._orderly = orderly
        self._subscriptions: dict[str, Subscription] = {}
        self._guard = threading.Lock()
        self._is_started = self._is_shut_down = self._is_suspended = False
        self._start_ms = _now_ms()
        self._build()

    @property
    def client_id(self) -> str:
        """The member's client id, which brokers and other members know."""
        return self._client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """Current queues of this member, including those of its retry topic, sorted."""
        return sorted(self._rebalancer.queues) if self._is_started else []

    def subscribe(self, topic: str, tags: str = _SUBSCRIBE_ALL, *, sql: str | None = None) -> None:
        """Subscribe to a topic; replaces an earlier subscription to it.

        If the consumer is running, this waits for the topic's queues, as `start` does.

        Parameters
        ----------
        topic
            Name of the topic.
        tags
            Tags separated by ``||``; ``*`` for all messages.
        sql
            SQL92 expression over properties for brokers with ``enablePropertyFilter=true``;
            replaces ``tags``.

        Raises
        ------
        ClientError
            The expression has no tag or is empty.
        BrokerError
            A broker does not understand the SQL expression (only if the consumer is running;
            otherwise `start` raises it).
        """
        kind, expression = (TAG, tags) if sql is None else (SQL92, sql)
        subscription = Subscription(topic, expression, kind, _now_ms())
        if self._is_started:
            self._client.call(self._subscribe_now(subscription))
        else:
            self._subscriptions[topic] = subscription

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic."""
        self._subscriptions.pop(topic, None)
        if self._is_started:
            self._client.call(self._rebalance_now())

    def start(self) -> PushConsumer:
        """Join the group and start consuming.

        It returns when this member has its queues and their start offsets: a new group receives all
        messages sent from then on. It waits up to 10 s for brokers that do not answer, then logs a
        warning with the topics, whose queues it acquires later.

        Raises
        ------
        ClientError
            The consumer was started or shut down before.
        RemotingError
            No name server can be reached.
        BrokerError
            A broker does not understand an SQL expression.
        """
        with self._guard:
            if self._is_started or self._is_shut_down:
                state = "was shut down" if self._is_shut_down else "is already running"
                raise ClientError(f"consumer of group {self.group} {state}: create a new one")
            self._is_started = True
        try:
            self._client.start()
            self._client.call(self._open())
        except BaseException:
            self.shutdown()
            raise
        return self

    def shutdown(self) -> None:
        """Stop calling listeners, wait for running ones, commit offsets and leave the group.

        It waits up to ``await_termination_s`` for listeners. A second call does nothing.
        """
        with self._guard:
            was_running = self._is_started and not self._is_shut_down
            self._is_shut_down = True
        if was_running:
            self._stop()

    def suspend(self) -> None:
        """Stop pulling until `resume`; messages already pulled are still consumed."""
        self._is_suspended = True
        if self._is_started:
            self._client.call(self._pause(True))

    def resume(self) -> None:
        """Pull again."""
        self._is_suspended = False
        if self._is_started:
            self._client.call(self._pause(False))

    # Called by the client.

    def heartbeat_data(self) -> ConsumerData:
        """Return the data for heartbeats."""
        return ConsumerData(
            self.group,
            tuple(each.data() for each in list(self._subscriptions.values())),
            ConsumeType.CONSUME_PASSIVELY,
            self.options.message_model,
            self.options.consume_from_where,
        )

    def on_consumer_ids_changed(self) -> None:
        """Rebalance soon."""
        self._rebalancer.rebalance_soon()

    def on_connection_closed(self, address: str) -> None:
        """Mark a broker's queues as unlocked, so they are locked again before consumption.

        The broker may have restarted and given the locks to another member.
        """
        if self._locks is not None:
            for each in self._rebalancer.process_queues:
                if self._client.is_at(each.queue.broker_name, address):
                    each.set_locked(False)

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets in a topic's queues; messages already pulled are discarded."""
        own = {queue: offset for queue, offset in offsets.items() if queue.topic == topic}
        logger.warning("group %s: offsets of topic %s are reset: %s", self.group, topic, own)
        self._client.call(self._rebalancer.begin_anew(own))

    def consumer_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """Return this member's offsets in its queues of a topic."""
        return self._offsets.table(topic)

    def running_info(self) -> dict[str, Any]:
        """Return RocketMQ's ``ConsumerRunningInfo``; the keys of ``mqTable`` are queues."""
        properties = running_properties(
            self._client, self.options, orderly=self._orderly, start_ms=self._start_ms
        )
        return running_info(
            properties,
            self.heartbeat_data(),
            self._rebalancer.process_queues,
            self._offsets,
            self._statistics,
        )

    def consume_directly(self, message: Message, broker_name: str) -> dict[str, Any]:
        """Call the listener with one message now, as an administrator requested."""
        context = ConsumeContext(MessageQueue(message.topic, broker_name, message.queue_id))
        if message.topic == RETRY_PREFIX + self.group:
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)
        begun = time.monotonic()
        answer = ask_listener(self._listener, [message], context)
        spent_ms = round(1000 * (time.monotonic() - begun))
        return directly_result(answer, orderly=self._orderly, spent_ms=spent_ms)

    # The parts.

    def _build(self) -> None:
        options = self.options
        self._brokers = GroupBrokers(self._client, self.group)
        self._statistics = ConsumeStatistics(time.monotonic)
        self._offsets = OffsetStore(
            self._local_file() if options.is_broadcasting else self._brokers
        )
        retries = options.max_reconsume_times
        if retries < 0:
            retries = ENDLESS if self._orderly else _DEFAULT_RETRIES
        self._threads = ListenerThreads(
            f"ConsumeMessageThread_{self.group[:100]}", options.consume_thread_count
        )
        self._side = ListenerSide(
            listener=self._listener,
            options=options,
            threads=self._threads,
            offsets=self._offsets,
            retries=RetrySender(self._client, self._brokers, retries),
            statistics=self._statistics,
            loop=_ClientLoop(self._client),
            now_ms=_now_ms,
        )
        if not options.is_broadcasting:
            topic = RETRY_PREFIX + self.group
            self._subscriptions[topic] = Subscription(topic, _SUBSCRIBE_ALL, TAG, _now_ms())

    def _local_file(self) -> LocalFileOffsets:
        directory = Path(self.options.offset_directory) / self._client.client_id / self.group
        return LocalFileOffsets(directory / "offsets.json")

    # In the loop. In Python 3.9, asyncio events belong to the loop in which they are created.

    async def _open(self) -> None:
        shares = not self.options.is_broadcasting
        self._locks = QueueLocks(self._brokers) if self._orderly and shares else None
        timestamp_ms = self.options.consume_timestamp_ms
        self._rebalancer = Rebalancer(
            client=self._client,
            brokers=self._brokers,
            options=self.options,
            subscriptions=self._subscriptions,
            offsets=self._offsets,
            starts=StartOffsets(
                self._offsets,
                self._brokers,
                self.options.consume_from_where,
                self._start_ms - _HALF_AN_HOUR_MS if timestamp_ms is None else timestamp_ms,
            ),
            locks=self._locks,
            now_ms=_now_ms,
        )
        self._not_paused = asyncio.Event()
        if not self._is_suspended:
            self._not_paused.set()
        self._connect()
        for subscription in list(self._subscriptions.values()):
            await self._check(subscription)
        await self._client.register_consumer(self.group, self)
        self._tasks = [asyncio.ensure_future(work) for work in self._services()]
        await self._wait_for_queues()

    async def _wait_for_queues(self) -> None:
        """Wait until messages sent from now on reach this group, even if it is new."""
        if not self._not_paused.is_set():
            return
        missing = await self._rebalancer.wait_for_queues(_FIRST_QUEUES_S)
        if missing and not self._is_shut_down:
            logger.warning(
                "group %s did not get all of its queues of topics %s within %g s: it keeps "
                "trying; if the group is new, it may miss messages that are sent until then",
                self.group,
                ", ".join(missing),
                _FIRST_QUEUES_S,
            )

    def _connect(self) -> None:
        consumption = self._consumption()
        pull_side = PullSide(
            client=self._client,
            brokers=self._brokers,
            options=self.options,
            offsets=self._offsets,
            consumption=consumption,
            statistics=self._statistics,
            subscriptions=self._subscriptions,
            not_paused=self._not_paused,
            offset_moved=self._rebalancer.offset_moved,
            announce=self._rebalancer.announce,
            locks=self._locks,
        )

        def pull(process_queue: ProcessQueue, offset: int) -> Coroutine[Any, Any, None]:
            return QueuePuller(pull_side, process_queue, offset).run()

        self._rebalancer.connect(consumption, pull)

    def _consumption(self) -> ConcurrentConsumption | OrderlyConsumption:
        if not self._orderly:
            self._concurrent = ConcurrentConsumption(self._side)
            return self._concurrent
        loop = self._side.loop
        return OrderlyConsumption(
            self._side, self._locks, lambda: loop.later(0, self._rebalancer.rebalance_soon)
        )

    def _services(self) -> list[Coroutine[Any, Any, None]]:
        persist_s = self._client.config.persist_consumer_offset_interval_ms / 1000
        services = [
            self._rebalance_always(),
            self._every(min(_FIRST_PERSIST_S, 2 * persist_s), persist_s, self._persist),
            self._every(SAMPLE_INTERVAL_S, SAMPLE_INTERVAL_S, self._sample),
        ]
        if self._locks is not None:
            services.append(self._every(_FIRST_LOCK_S, LOCK_INTERVAL_S, self._renew_locks))
        if not self._orderly:
            timeout_s = self.options.consume_timeout_ms / 1000
            services.append(self._every(timeout_s, timeout_s, self._concurrent.give_up_expired))
        return services

    async def _every(
        self, first_s: float, interval_s: float, work: Callable[[], Awaitable[None]]
    ) -> None:
        await asyncio.sleep(first_s)
        while True:
            try:
                await work()
            except Exception:
                logger.exception("group %s: a background task failed", self.group)
            await asyncio.sleep(interval_s)

    async def _rebalance_always(self) -> None:
        interval_s = self.options.rebalance_interval_ms / 1000
        while not self._is_shut_down:  # before Python 3.12, wait_for may miss a cancellation
            is_balanced = True
            if self._not_paused.is_set():
                try:
                    is_balanced = await self._rebalancer.rebalance()
                except Exception:
                    logger.exception("group %s: cannot distribute the queues", self.group)
            await self._rebalancer.wait_until_wanted(
                interval_s if is_balanced else min(_UNBALANCED_S, interval_s)
            )

    async def _persist(self) -> None:
        await self._offsets.persist(self._rebalancer.queues)

    async def _sample(self) -> None:
        self._statistics.sample()

    async def _renew_locks(self) -> None:
        if self._locks is not None:
            await self._locks.lock_all(self._rebalancer.process_queues)

    async def _check(self, subscription: Subscription) -> None:
        """Have a broker check an SQL expression."""
        try:
            await self._brokers.check(subscription)
        except TopicNotFoundError as err:
            if not subscription.topic.startswith(RETRY_PREFIX):
                logger.warning("group %s: %s", self.group, err)

    async def _subscribe_now(self, subscription: Subscription) -> None:
        await self._check(subscription)
        known = self._subscriptions.get(subscription.topic)
        if known is not None:  # brokers use the newest, even if the clock was set back
            subscription.version = max(subscription.version, known.version + 1)
        self._subscriptions[subscription.topic] = subscription
        await self._client.send_heartbeats()
        await self._rebalance_now()
        await self._wait_for_queues()

    async def _rebalance_now(self) -> None:
        self._rebalancer.rebalance_soon()

    async def _pause(self, paused: bool) -> None:
        if paused:
            self._not_paused.clear()
        else:
            self._not_paused.set()
            self._rebalancer.rebalance_soon()

    # The end.

    def _stop(self) -> None:
        try:
            self._call_at_end(self._stop_pulling())
            self._threads.shutdown(self.options.await_termination_s)
            self._call_at_end(self._leave())
        finally:
            self._threads.shutdown(0)
            if self._owns_client:
                self._client.shutdown()

    def _call_at_end(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self._client.call(work)
        except (RemotingError, BrokerError, ClientError) as err:
            logger.warning("group %s: not shut down cleanly: %s", self.group, err)

    async def _stop_pulling(self) -> None:
        for task in getattr(self, "_tasks", ()):
            task.cancel()
        if hasattr(self, "_rebalancer"):
            self._rebalancer.stop_pulling()

    async def _leave(self) -> None:
        if hasattr(self, "_tasks"):
            await self._offsets.persist(self._rebalancer.queues, wait=True)
            self._rebalancer.drop_all()
            if self._locks is not None:
                await self._locks.unlock_all()
        if self._client.has_consumer(self.group, self):
            await self._client.unregister_consumer(self.group)


class _ClientLoop:
    """The client's event loop for use by listeners' threads."""

    def __init__(self, client: ClientInstance) -> None:
        self._client = client

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Run a coroutine in the loop."""
        return self._client.submit(work)

    def later(self, delay_ms: int, work: Callable[[], object]) -> None:
        """Call a function in the loop after a delay."""
        try:
            self._client.submit(_after(delay_ms / 1000, work))
        except ClientError:  # shut down meanwhile; the brokers have the messages
            logger.debug("a delayed task is dropped: the client was shut down")


async def _after(delay_s: float, work: Callable[[], object]) -> None:
    await asyncio.sleep(delay_s)
    work()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
