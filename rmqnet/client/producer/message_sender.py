# SPDX-License-Identifier: Apache-2.0
"""Sending messages in a client's event loop, with retries on other brokers.

Source: RocketMQ ``DefaultMQProducerImpl.sendDefaultImpl``, ``MQClientAPIImpl`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rmqnet.client.producer.queue_selection import (
    LatencyFaultTolerance,
    TopicPublishInfo,
    select_queue,
    select_queue_by_hash,
)
from rmqnet.client.send_result import SEND_STATUS, SendStatus, send_result_of
from rmqnet.errors import (
    BrokerError,
    ClientError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    SendAttempt,
    SendFailedError,
    SendTimeoutError,
)
from rmqnet.remoting.codes import ResponseCode, request_name
from rmqnet.remoting.header_fields import encode_header
from rmqnet.remoting.headers import SendMessageRequestHeaderV2
from rmqnet.remoting.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from rmqnet.client.client_instance import ClientInstance
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.producer.outgoing_message import OutgoingMessage
    from rmqnet.client.producer.producer_config import ProducerConfig
    from rmqnet.client.producer.sending import Sending
    from rmqnet.client.topic_route import TopicRoute

logger = logging.getLogger(__name__)
_REFRESH_PAUSE_S = 1.0
"""Shortest interval of refreshes of a topic's route while its broker cannot be reached."""
RETRY_RESPONSE_CODES = frozenset(
    int(code)
    for code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Response codes after which another broker may accept the message."""
RETRIED_ERRORS = (RemotingConnectError, RemotingTimeoutError)
"""Errors of connections and timeouts; not too many waiting requests or too long a frame."""
_MOST_QUEUES = 10_000
_NAMES = {
    field.name: str(field.metadata["short_name"])
    for field in dataclasses.fields(SendMessageRequestHeaderV2)
}
_SYS_FLAG = _NAMES["sys_flag"]
_BORN_TIMESTAMP = _NAMES["born_timestamp"]
_FLAG = _NAMES["flag"]
_PROPERTIES = _NAMES["properties"]
_RECONSUME_TIMES = _NAMES["reconsume_times"]
_MAX_RECONSUME_TIMES = _NAMES["max_reconsume_times"]
_BATCH = _NAMES["batch"]


class _Topic:
    """The queues of a topic while its route stays the same."""

    __slots__ = ("info", "refreshed_at", "route")

    def __init__(self, route: TopicRoute) -> None:
        self.route = route
        queues = route.publish_queues()
        self.info = TopicPublishInfo(queues) if queues else None
        self.refreshed_at = 0.0


class MessageSender:
    """Sends the messages of all threads in the event loop, in order."""

    def __init__(self, instance: ClientInstance, group: str, config: ProducerConfig) -> None:
        self._instance = instance
        self._config = config
        self._max_timeout_s = config.send_msg_max_timeout_per_request_ms / 1000
        self._headers = SendHeaders(group, config.create_topic_key, config.default_topic_queue_nums)
        self._faults = LatencyFaultTolerance() if config.send_latency_fault_enable else None
        self._topics: dict[str, _Topic] = {}
        self._without_route: dict[str, dict[Sending, None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._arrived: deque[Sending] = deque()
        self._is_woken = False
        self._loop = instance.call(_running_loop())

    @property
    def topics(self) -> set[str]:
        """Topics to which messages were sent since the start; any thread may read it."""
        return set(self._topics)

    def submit(self, sending: Sending) -> None:
        """Hand over a message for sending; may be called in any thread.

        Raises
        ------
        ClientError
            The client is not running or belongs to the parent of this forked process.
        """
        if not self._instance.is_running:
            raise ClientError(
                f"client {self._instance.client_id} does not run in this process: nothing is sent"
            )
        self._arrived.append(sending)
        if self._is_woken:
            return  # the pending call of the loop handles this message too
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._begin_arrived)
        except RuntimeError as err:  # closed meanwhile
            raise ClientError(f"client {self._instance.client_id} was shut down") from err

    def abandon_arrived(self) -> None:
        """Fail messages not started before the client's shutdown; may be called in any thread."""
        while self._arrived:
            sending = self._arrived.popleft()
            sending.finish(None, ClientError("the client was shut down before it sent this"))

    def is_in_loop(self) -> bool:
        """Return whether this is the event loop's thread, which must not block."""
        return asyncio._get_running_loop() is self._loop

    # The following methods run in the event loop.

    def _begin_arrived(self) -> None:
        self._is_woken = False
        arrived = self._arrived
        for _ in range(len(arrived)):
            sending = arrived.popleft()
            sending.is_last = not arrived
            try:
                self._begin(sending)
            except Exception as err:  # the others continue
                self._break_off(sending, err)
        if arrived and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._begin_arrived)

    def _begin(self, sending: Sending) -> None:
        topic = sending.message.topic
        if topic in self._without_route:
            self._wait_for_route(sending)
            return
        route = self._instance.cached_route(topic)
        if route is not None:
            info = self._topic(topic, route).info
            if info is not None:
                self._try(sending, info)
                return
        self._without_route[topic] = {}
        self._wait_for_route(sending)
        self._run(self._find_route(topic, is_known=route is not None))

    def _topic(self, name: str, route: TopicRoute) -> _Topic:
        topic = self._topics.get(name)
        if topic is None or topic.route is not route:
            topic = self._topics[name] = _Topic(route)
        return topic

    def _try(self, sending: Sending, info: TopicPublishInfo) -> None:
        """Send to one broker."""
        now = time.monotonic()
        left_s = sending.deadline - now
        if left_s <= 0:
            self._give_up(sending, is_late=True)
            return
        if sending.retries and 0 <= self._max_timeout_s < left_s:
            left_s = self._max_timeout_s
        queue = sending.queue = self._choose(sending, info)
        sending.started_at, sending.address = now, ""
        try:
            sending.address = self._instance.broker_address(queue.broker_name)
        except ClientError as err:
            self._note_fault(sending, isolation=False)
            self._try_again(sending, err)
            return
        message = sending.message
        fields = self._headers.fields(message, queue, time.time_ns() // 1_000_000)
        command = RemotingCommand(message.request_code, fields, message.body)
        if sending.is_oneway:
            self._run(self._send_oneway(sending, command, left_s))
            return
        self._instance.remoting.invoke_then(
            sending.address, command, left_s, sending.on_end, is_last=sending.is_last
        )

    def _choose(self, sending: Sending, info: TopicPublishInfo) -> MessageQueue:
        if sending.wanted_queue is not None:
            return sending.wanted_queue
        if sending.sharding_key is not None:
            return select_queue_by_hash(info.queues, sending.sharding_key)
        last_broker = None if sending.queue is None else sending.queue.broker_name
        return select_queue(info, last_broker, self._faults)

    def on_response(
        self, sending: Sending, response: RemotingCommand | None, error: Exception | None
    ) -> None:
        """Finish or retry a message after an answer or a failure."""
        try:
            if response is not None:
                self._take_response(sending, response)
            elif error is not None:
                self._take_error(sending, error)
        except Exception as err:
            self._break_off(sending, err)

    def _break_off(self, sending: Sending, error: Exception) -> None:
        """Fail a message after an unexpected error, so that its caller does not wait forever."""
        logger.error("sending a message to topic %s failed", sending.message.topic, exc_info=error)
        sending.finish(None, error)

    def _take_response(self, sending: Sending, response: RemotingCommand) -> None:
        if response.code not in SEND_STATUS:
            self._take_refusal(sending, response)
            return
        assert sending.queue is not None
        self._note_fault(sending)
        message = sending.message
        try:
            result = send_result_of(response, sending.address, sending.queue, message.message_id)
        except RemotingError as err:
            sending.finish(None, err)
            return
        if (
            result.status is not SendStatus.SEND_OK
            and self._config.retry_another_broker_when_not_store_ok
            and sending.retries
        ):
            sending.stored = result
            self._try_again(sending, ClientError(f"stored, but {result.status.value}"))
        else:
            sending.finish(result, None)

    def _take_refusal(self, sending: Sending, response: RemotingCommand) -> None:
        self._note_fault(sending, isolation=True, reachable=False)
        request = f"{request_name(sending.message.request_code)} to topic {sending.message.topic}"
        remark = response.remark or "no reason given"
        error = BrokerError(response.code, remark, sending.address, request)
        if response.code in RETRY_RESPONSE_CODES and not error.is_access_refused:
            self._try_again(sending, error)
        elif sending.stored is not None:
            sending.finish(sending.stored, None)
        else:
            sending.finish(None, error)

    def _take_error(self, sending: Sending, error: BaseException) -> None:
        if not isinstance(error, RETRIED_ERRORS):
            sending.finish(sending.stored, None if sending.stored is not None else error)
            return
        self._note_fault(sending, isolation=True)
        if isinstance(error, RemotingConnectError):
            self._look_again_soon(sending.message.topic)
        self._try_again(sending, error)

    def _try_again(self, sending: Sending, error: BaseException) -> None:
        assert sending.queue is not None
        logger.info("topic %s: %s, %s", sending.message.topic, sending.queue.broker_name, error)
        sending.attempts.append(
            SendAttempt(sending.queue.broker_name, sending.address, _reason(error))
        )
        if not sending.retries or not self._instance.is_running:
            self._give_up(sending, error)
            return
        sending.retries -= 1
        name = sending.message.topic
        route = self._instance.cached_route(name)
        info = None if route is None else self._topic(name, route).info
        if info is None:
            self._give_up(sending, error)
        else:
            self._try(sending, info)

    def _give_up(
        self, sending: Sending, error: BaseException | None = None, *, is_late: bool = False
    ) -> None:
        if sending.stored is not None:
            sending.finish(sending.stored, None)
            return
        is_late = is_late or isinstance(error, RemotingTimeoutError)
        cls = SendTimeoutError if is_late else SendFailedError
        cost_ms = int((time.monotonic() - sending.began_at) * 1000)
        code = error.code if isinstance(error, BrokerError) else None
        failure = cls(sending.message.topic, tuple(sending.attempts), cost_ms, code)
        failure.__cause__ = error
        sending.finish(None, failure)

    def _note_fault(
        self, sending: Sending, *, isolation: bool = False, reachable: bool = True
    ) -> None:
        if self._faults is not None and sending.queue is not None:
            latency_ms = int((time.monotonic() - sending.started_at) * 1000)
            self._faults.update(
                sending.queue.broker_name, latency_ms, isolation=isolation, reachable=reachable
            )

    async def _send_oneway(
        self, sending: Sending, command: RemotingCommand, timeout_s: float
    ) -> None:
        try:
            await self._instance.remoting.invoke_oneway(sending.address, command, timeout_s)
        except RemotingError as err:
            err.address = sending.address
            text = "a one-way message to topic %s: %s"
            self._instance.outages.report(logger, err, text, sending.message.topic, err)
            self._note_fault(sending, isolation=True)
            sending.finish(None, err)
        else:
            sending.finish(None, None)

    # Routes.

    async def _find_route(self, topic: str, *, is_known: bool) -> None:
        """Ask for a route, then send the messages that waited for it."""
        info: TopicPublishInfo | None = None
        error: Exception = ClientError("the client was shut down")
        try:
            info = self._topic(topic, await self._asked_route(topic, is_known)).info
            error = ClientError(
                f"topic {topic} has no queue to send to: none of its brokers has a master and "
                "allows writing"
            )
        except Exception as err:
            error = err
        finally:
            for sending in self._without_route.pop(topic):
                self._go_on(sending, info, error)

    def _go_on(self, sending: Sending, info: TopicPublishInfo | None, error: BaseException) -> None:
        if info is None:
            sending.finish(None, error)
            return
        try:
            self._try(sending, info)
        except Exception as err:  # the others continue
            self._break_off(sending, err)

    async def _asked_route(self, topic: str, is_known: bool) -> TopicRoute:
        if is_known:
            return await self._instance.refresh_route(topic)
        config = self._config
        return await self._instance.publish_route(
            topic, config.default_topic_queue_nums, config.create_topic_key
        )

    def _wait_for_route(self, sending: Sending) -> None:
        """Keep a message until the route arrives or its timeout ends."""
        self._without_route[sending.message.topic][sending] = None
        left_s = sending.deadline - time.monotonic()
        self._loop.call_later(left_s, self._fail_without_route, sending)

    def _fail_without_route(self, sending: Sending) -> None:
        waiting = self._without_route.get(sending.message.topic, {})
        if sending in waiting:
            del waiting[sending]
            error = RemotingTimeoutError("no name server has sent the route of the topic yet")
            self._give_up(sending, error)

    def _look_again_soon(self, topic: str) -> None:
        """Refresh the route, as name servers remove a lost broker after a while."""
        known = self._topics.get(topic)
        now = time.monotonic()
        if known is not None and now - known.refreshed_at >= _REFRESH_PAUSE_S:
            known.refreshed_at = now
            self._run(self._refresh(topic))

    async def _refresh(self, topic: str) -> None:
        try:
            await self._instance.refresh_route(topic)
        except (ClientError, BrokerError, RemotingError) as err:
            logger.info("cannot update the route of topic %s: %s", topic, err)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reason(error: BaseException) -> str:
    if isinstance(error, BrokerError):
        return f"code {error.code}, {error.remark}"
    return str(error) or type(error).__name__


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


class SendHeaders:
    """Creates the fields of ``SendMessageRequestHeaderV2``. Not thread-safe.

    Parameters
    ----------
    default_topic_queue_nums
        Most queues that a topic created like ``default_topic`` gets on each broker.
    """

    def __init__(self, group: str, default_topic: str, default_topic_queue_nums: int) -> None:
        self._group = group
        self._default_topic = default_topic
        self._default_topic_queue_nums = default_topic_queue_nums
        self._same: dict[MessageQueue, dict[str, str]] = {}

    def fields(
        self, message: OutgoingMessage, queue: MessageQueue, born_timestamp: int
    ) -> dict[str, str]:
        """Return the encoded fields; ``born_timestamp`` is in milliseconds since the epoch."""
        fields = dict(self._same.get(queue) or self._make_same(queue))
        fields[_BORN_TIMESTAMP] = str(born_timestamp)
        fields[_PROPERTIES] = message.properties
        if message.flag:
            fields[_FLAG] = str(message.flag)
        if message.sys_flag:
            fields[_SYS_FLAG] = str(message.sys_flag)
        if message.batch:
            fields[_BATCH] = "true"
        if message.reconsume_times:
            fields[_RECONSUME_TIMES] = str(message.reconsume_times)
        if message.max_reconsume_times is not None:
            fields[_MAX_RECONSUME_TIMES] = str(message.max_reconsume_times)
        return fields

    def _make_same(self, queue: MessageQueue) -> dict[str, str]:
        if len(self._same) >= _MOST_QUEUES:  # including queues of topics no longer in use
            self._same.clear()
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=queue.topic,
            default_topic=self._default_topic,
            default_topic_queue_nums=self._default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            bname=queue.broker_name,
        )
        same = self._same[queue] = encode_header(header)
        return same
