# SPDX-License-Identifier: Apache-2.0
"""Producers, which send messages.

Source: RocketMQ ``DefaultMQProducer``, ``DefaultMQProducerImpl`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, TypeVar, Union

from rmqnet.client.addresses import local_ip
from rmqnet.client.client_config import ClientConfig
from rmqnet.client.client_instance import ClientInstance
from rmqnet.client.producer.message_batch import outgoing_batch
from rmqnet.client.producer.message_sender import MessageSender
from rmqnet.client.producer.outgoing_message import OutgoingMessage, outgoing_message
from rmqnet.client.producer.producer_config import ProducerConfig
from rmqnet.client.producer.request_reply import PendingReplies
from rmqnet.client.producer.sending import AsyncSending, InFlightLimit, OnewaySending, SyncSending
from rmqnet.client.producer.unique_keys import UniqueKeys
from rmqnet.client.producer.validation import check_group
from rmqnet.errors import ClientError, RemotingTimeoutError, RemotingTooMuchRequestError
from store_core.layout import (
    PROPERTY_DELAY,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
from store_core.with_blocks import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from concurrent.futures import Future

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.send_result import SendResult
    from rmqnet.remoting.headers import CheckTransactionStateRequestHeader
    from store_core.message import Message

logger = logging.getLogger(__name__)

_LOOK_S = 0.5
"""Interval of checks whether a shared client is still running."""

_LONGEST_S = 30 * 86_400.0
"""Upper bound of timeouts, within the range that systems support."""

Client = Union[ClientInstance, ClientConfig, str]
P = TypeVar("P", bound="Producer")


class Producer(ShuttingDown):
    """Sends messages; any number of threads may use one producer.

    ``with Producer("group", "host:9876") as producer: producer.send(Message("topic", b"body"))``.

    A message without a unique key gets one when it is sent. It keeps the key if the same object is
    sent again, so readers can drop repeats. Each method raises `ClientError` for errors known
    before anything is sent (sizes, names, wrong use).

    Parameters
    ----------
    group
        Name of the producer group; any valid name for messages without transactions.
    client
        Name server addresses (``host:port;host:port``), a `ClientConfig`, or a `ClientInstance`.
        The caller owns such an instance and may share it with other producers and consumers.
    **settings
        Fields of `ProducerConfig`.
    """

    def __init__(self, group: str, client: Client, **settings: Any) -> None:
        check_group(group)
        self.group = group
        self.config = ProducerConfig(**settings)
        self._owns_instance = not isinstance(client, ClientInstance)
        self._instance = client if isinstance(client, ClientInstance) else ClientInstance(client)
        self._compression = self.config.compression
        self._timeout_s = self.config.send_msg_timeout_ms / 1000
        self._limit = InFlightLimit(
            self.config.back_pressure_for_async_send_num,
            self.config.back_pressure_for_async_send_size,
        )
        self._keys = UniqueKeys(ip_address(local_ip()).packed)
        self._replies = PendingReplies()
        self._sender: MessageSender | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self: P) -> P:
        """Start; the first message announces the group to brokers. A second call does nothing."""
        with self._lock:
            if self._is_closed:
                raise ClientError(f"producer {self.group} was shut down: create a new one")
            if self._sender is None:
                self._instance.start()
                try:
                    sender = MessageSender(self._instance, self.group, self.config)
                    self._instance.call(self._instance.register_producer(self.group, self))
                except BaseException:
                    if self._owns_instance:
                        self._instance.shutdown()
                    raise
                self._sender = sender
        return self

    def shutdown(self) -> None:
        """Wait for messages in flight, up to their timeouts, then leave the group.

        May be called more than once. Sends by other threads meanwhile fail.
        """
        with self._lock:
            sender, self._sender = self._sender, None
            self._is_closed = True
        if sender is None:
            return
        try:
            if not sender.is_in_loop():
                self._wait_for_all(sender)
                if self._instance.is_running:
                    self._instance.call(self._instance.unregister_producer(self.group))
        finally:
            if self._owns_instance:
                self._instance.shutdown()

    def _wait_for_all(self, sender: MessageSender) -> None:
        while not self._limit.wait_until_none(_LOOK_S if self._instance.is_running else 0):
            if not self._instance.is_running:
                sender.abandon_arrived()
                return

    def send(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Parameters
        ----------
        message
            Its topic, body, properties and flag are sent.
        timeout_s
            Timeout including retries; ``send_msg_timeout_ms`` if None.
        queue
            Send to this queue without retries on other brokers.
        sharding_key
            Choose the queue by this key, as Java's ``SelectMessageQueueByHash`` does for a
            ``String``. Messages of one key stay in order if each is sent after the answer to the
            previous one. There are no retries on other brokers.
        delay_level
            Deliver later by one of the broker's ``messageDelayLevel``; 1 is the first.
        delay_ms, deliver_at_ms
            Deliver after this many milliseconds, or at a time (milliseconds since the epoch).
            Only for RocketMQ 5: older brokers deliver immediately.

        Returns
        -------
        result
            Check its ``status``: other than ``SEND_OK``, the message was stored less safely than
            the broker's settings require.

        Raises
        ------
        SendFailedError
            All tries failed; the text names the brokers and reasons. `SendTimeoutError` if the
            time ended. A broker that did not answer may have stored the message.
        BrokerError
            A broker refused the message for a reason that applies to all brokers.
        TopicNotFoundError
            The topic is unknown, and brokers do not create topics.
        RemotingTooMuchRequestError
            Too many requests wait for that broker.
        """
        sender = self._running_sender()
        more = _delay_properties(delay_level, delay_ms, deliver_at_ms)
        outgoing = self._outgoing(message, more)
        return self._send_and_wait(sender, outgoing, timeout_s, queue, sharding_key)

    def send_async(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> Future[SendResult]:
        """Send a message; return a future with the result or error that `send` would have.

        Callbacks of the future run in the client's network thread, so they must be quick and must
        not block. In asyncio: ``await asyncio.wrap_future(producer.send_async(message))``.

        Messages are sent in the order of the calls, but a broker processes several concurrently
        and may store a later one first, even with the same key.

        If ``back_pressure_for_async_send_num`` or ``…_size`` is reached, this waits for room for
        up to ``timeout_s``.

        Raises
        ------
        RemotingTooMuchRequestError
            There was no room in time (in callbacks: immediately). Nothing was sent.
        """
        sender = self._running_sender()
        more = _delay_properties(delay_level, delay_ms, deliver_at_ms)
        outgoing = self._outgoing(message, more)
        return self._send_later(sender, outgoing, timeout_s, queue, sharding_key)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
        delay_level: int | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
    ) -> None:
        """Send a message without an answer from the broker; failures are logged at most.

        The limits of `send_async` apply.

        Raises
        ------
        RemotingTooMuchRequestError
            There was no room in time. Nothing was sent.
        """
        sender = self._running_sender()
        more = _delay_properties(delay_level, delay_ms, deliver_at_ms)
        outgoing = self._outgoing(message, more)
        _check_queue(outgoing, queue, sharding_key)
        self._make_room(sender, outgoing, self._timeout_s)
        sending = OnewaySending(sender, outgoing, self._timeout_s, queue, sharding_key, self._limit)
        self._submit(sender, sending)

    def send_batch(
        self,
        messages: Iterable[Message] | OutgoingMessage,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> SendResult:
        """Send messages of one topic to one queue in one request, and wait.

        Either all of them are stored or none. Commas separate the ids in the result.

        Parameters
        ----------
        messages
            Messages without delay, together at most ``max_message_size`` long; or the result of
            `encoded_batch`.
        timeout_s, queue, sharding_key
            As in `send`, whose errors this method also raises.
        """
        sender = self._running_sender()
        batch = self._batch(messages)
        return self._send_and_wait(sender, batch, timeout_s, queue, sharding_key)

    def send_batch_async(
        self,
        messages: Iterable[Message] | OutgoingMessage,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> Future[SendResult]:
        """Send a batch as `send_batch` does and return a future as `send_async` does."""
        sender = self._running_sender()
        batch = self._batch(messages)
        return self._send_later(sender, batch, timeout_s, queue, sharding_key)

    def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        """Send a message and wait for its consumer's reply (see `reply_to`).

        Parameters
        ----------
        message
            The request.
        timeout_s
            Timeout including the reply; ``send_msg_timeout_ms`` if None.

        Raises
        ------
        RemotingTimeoutError
            The request was sent, but no reply arrived in time.

        The errors of `send` are raised as well.
        """
        sender = self._running_sender()
        timeout_s = self._seconds(timeout_s)
        deadline = time.monotonic() + timeout_s
        with self._replies.open() as pending:
            properties = pending.properties(self._instance.client_id, timeout_s)
            outgoing = self._outgoing(message, properties)
            self._send_and_wait(sender, outgoing, timeout_s, None, None)
            reply = pending.wait(deadline - time.monotonic())
        if reply is None:
            raise RemotingTimeoutError(
                f"message {outgoing.message_id} to topic {outgoing.topic} was sent, but no reply "
                f"came within {timeout_s:g} s"
            )
        return reply

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until no asynchronous or one-way message is in flight; False if the time ends.

        Then the futures of earlier messages are done, and their callbacks have run.
        """
        sender = self._running_sender()
        if sender.is_in_loop():
            raise _blocks_itself()
        if not self._limit.wait_until_none(None if timeout_s is None else _bounded(timeout_s)):
            return False
        # A message releases its room before its callbacks run, which may send: let them end.
        self._instance.call(asyncio.sleep(0))
        return True

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic in the order that ``sharding_key`` selects from.

        Raises
        ------
        TopicNotFoundError
            The topic is unknown, and brokers do not create topics.
        """
        self._running_sender()
        route = self._instance.publish_route(
            topic, self.config.default_topic_queue_nums, self.config.create_topic_key
        )
        return self._instance.call(route).publish_queues()

    # Called by the client.

    def publish_topics(self) -> Collection[str]:
        """Return the topics to which messages were sent."""
        sender = self._sender
        return sender.topics if sender is not None else ()

    def check_transaction(
        self, message: Message, header: CheckTransactionStateRequestHeader, broker_address: str
    ) -> None:
        """Leave a check unanswered: another producer of the group may know the transaction."""
        logger.warning(
            "%s asks producer %s about a transaction, but it is not a TransactionProducer",
            broker_address,
            self.group,
        )

    def on_reply(self, message: Message) -> bool:
        """Accept the reply to a request; False if this producer did not send the request."""
        return self._replies.take(message)

    def _running_sender(self) -> MessageSender:
        sender = self._sender
        if sender is None:
            state = "was shut down" if self._is_closed else "is not started: call start() first"
            raise ClientError(f"producer {self.group} {state}")
        return sender

    def _seconds(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else _bounded(timeout_s)

    def _outgoing(
        self, message: Message, more_properties: Mapping[str, str] | None = None
    ) -> OutgoingMessage:
        return outgoing_message(
            message, self._keys, self._compression, self.config.max_message_size, more_properties
        )

    def _batch(self, messages: Iterable[Message] | OutgoingMessage) -> OutgoingMessage:
        if isinstance(messages, OutgoingMessage):
            return messages
        return outgoing_batch(list(messages), self._keys, self.config.max_message_size)

    def _send_and_wait(
        self,
        sender: MessageSender,
        outgoing: OutgoingMessage,
        timeout_s: float | None,
        queue: MessageQueue | None,
        sharding_key: str | None,
    ) -> SendResult:
        if sender.is_in_loop():
            raise _blocks_itself()
        _check_queue(outgoing, queue, sharding_key)
        sending = SyncSending(
            sender,
            outgoing,
            self._seconds(timeout_s),
            self.config.retry_times_when_send_failed,
            queue,
            sharding_key,
        )
        sender.submit(sending)
        return sending.wait()

    def _send_later(
        self,
        sender: MessageSender,
        outgoing: OutgoingMessage,
        timeout_s: float | None,
        queue: MessageQueue | None,
        sharding_key: str | None,
    ) -> Future[SendResult]:
        _check_queue(outgoing, queue, sharding_key)
        timeout_s = self._seconds(timeout_s)
        retries = self.config.retry_times_when_send_async_failed
        self._make_room(sender, outgoing, timeout_s)
        sending = AsyncSending(
            sender, outgoing, timeout_s, retries, queue, sharding_key, self._limit
        )
        self._submit(sender, sending)
        return sending.future

    def _make_room(
        self, sender: MessageSender, outgoing: OutgoingMessage, timeout_s: float
    ) -> None:
        wait_s = 0.0 if sender.is_in_loop() else timeout_s
        limit = self._limit
        if not limit.acquire(len(outgoing.body), wait_s):
            raise RemotingTooMuchRequestError(
                f"a message to topic {outgoing.topic} was not sent: {limit.messages} are in "
                f"flight, and there was no room within {wait_s:g} s "
                f"(back_pressure_for_async_send_num={limit.most_messages}, "
                f"…_size={limit.most_bytes})"
            )

    def _submit(self, sender: MessageSender, sending: AsyncSending | OnewaySending) -> None:
        try:
            sender.submit(sending)
        except BaseException:
            self._limit.release(len(sending.message.body))
            raise


def _bounded(timeout_s: float) -> float:
    """Return a timeout that threads support; ClientError if it is not a number."""
    if not isinstance(timeout_s, (int, float)) or math.isnan(timeout_s):
        raise ClientError(f"timeout_s: expected seconds, not {timeout_s!r}")
    return min(timeout_s, _LONGEST_S)


def _delay_properties(
    delay_level: int | None, delay_ms: int | None, deliver_at_ms: int | None
) -> dict[str, str] | None:
    if delay_level is None and delay_ms is None and deliver_at_ms is None:
        return None
    given = {
        PROPERTY_DELAY: delay_level,
        PROPERTY_TIMER_DELAY_MS: delay_ms,
        PROPERTY_TIMER_DELIVER_MS: deliver_at_ms,
    }
    properties = {name: str(value) for name, value in given.items() if value is not None}
    if len(properties) > 1:
        raise ClientError("only one of delay_level, delay_ms and deliver_at_ms may be given")
    return properties


def _check_queue(
    outgoing: OutgoingMessage, queue: MessageQueue | None, sharding_key: str | None
) -> None:
    if sharding_key is not None and not isinstance(sharding_key, str):
        raise ClientError(f"sharding_key: expected a string, not {sharding_key!r}")
    if queue is not None and sharding_key is not None:
        raise ClientError("only one of queue and sharding_key may be given")
    if queue is not None and queue.topic != outgoing.topic:
        raise ClientError(f"a message to topic {outgoing.topic} cannot be sent to {queue}")


def _blocks_itself() -> ClientError:
    return ClientError(
        "a blocking call in the client's network thread would wait for itself: use send_async "
        "in callbacks, or another thread"
    )
