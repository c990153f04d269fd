"""Producers: they send messages.

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
"""Between two looks whether a client that others share still runs."""

_LONGEST_S = 30 * 86_400.0
"""More than anybody waits, and less than systems can count."""

Client = Union[ClientInstance, ClientConfig, str]
P = TypeVar("P", bound="Producer")


class Producer(ShuttingDown):
    """Sends messages; any number of threads may use one at once.

    ``with Producer("group", "host:9876") as producer: producer.send(Message("topic", b"body"))``.

    A message without a unique key is given one when it is sent: sent again by the same object, it
    keeps it, so that readers can drop repeats. Errors that are known before anything is sent
    (sizes, names, wrong use) are raised as `ClientError` by each method.

    Parameters
    ----------
    group
        Name of the producer group. For messages without transactions any name will do.
    client
        How to find the cluster: addresses of name servers (``host:port;host:port``), a
        `ClientConfig`, or a `ClientInstance`, which several producers and consumers may share and
        which outlives this producer.
    **settings
        Those of `ProducerConfig`, by their names.
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
        """Start; brokers learn of the group when the first message is sent. Again: nothing."""
        with self._lock:
            if self._is_closed:
                raise ClientError(f"producer {self.group} was shut down: make a new one")
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
        """Wait for what is under way, as long as each message may take, then leave the group.

        May be called more than once. What is sent meanwhile by other threads fails.
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
            Topic, body, properties and flag count.
        timeout_s
            For all tries together; None: ``send_msg_timeout_ms``.
        queue
            Send to this queue, or fail: no other broker is tried.
        sharding_key
            Choose the queue by this key, as Java's ``SelectMessageQueueByHash`` does for a
            ``String``: messages of one key stay in order if each is sent after the answer to the
            one before. No other broker is tried.
        delay_level
            Deliver later: one of the broker's ``messageDelayLevel``, 1 is the first.
        delay_ms, deliver_at_ms
            Deliver after so many milliseconds, or at a time (milliseconds since the epoch).
            RocketMQ 5 only: older brokers deliver at once.

        Returns
        -------
        result
            Look at its ``status``: ``SEND_OK``, or stored but not as safe as the broker wants.

        Raises
        ------
        SendFailedError
            All tries failed; the text names the brokers and reasons. `SendTimeoutError` if the
            time is over. The message may have been stored where a broker did not answer.
        BrokerError
            A broker refused the message for a reason that holds for all of them.
        TopicNotFoundError
            The topic is unknown, and brokers create none.
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
        """Send a message; the future has the result, or the error, that `send` would have.

        Callbacks of the future run in the client's network thread: they must be quick, and must
        not wait. In asyncio: ``await asyncio.wrap_future(producer.send_async(message))``.

        Messages go out in the order of the calls, but a broker works on several at once: of those
        under way together it may store a later one first, also of one key.

        With as many messages under way as ``back_pressure_for_async_send_num`` and ``…_size``
        allow this waits for room, ``timeout_s`` at most.

        Raises
        ------
        RemotingTooMuchRequestError
            There was no room in time; at once where a callback sends. Nothing was sent.
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
        """Send a message and do not ask whether it arrived; a failure is logged at most.

        Bounded as `send_async` is.

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

        All of them are stored, or none. The ids in the result have commas between them.

        Parameters
        ----------
        messages
            Not delayed, and no longer in all than ``max_message_size``; or made by
            `encoded_batch`.
        timeout_s, queue, sharding_key
            As of `send`, whose errors this has, too.
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
        """Do as `send_batch`, and return a future as `send_async` does."""
        sender = self._running_sender()
        batch = self._batch(messages)
        return self._send_later(sender, batch, timeout_s, queue, sharding_key)

    def request(self, message: Message, *, timeout_s: float | None = None) -> Message:
        """Send a message and wait until whoever consumed it replies (see `reply_to`).

        Parameters
        ----------
        message
            The request.
        timeout_s
            For all of it, the reply included; None: ``send_msg_timeout_ms``.

        Raises
        ------
        RemotingTimeoutError
            The request was sent, but no reply came in time.

        Also the errors of `send`.
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
        """Wait until no asynchronous or one-way message is under way; False if one is, in time.

        The futures of all before are done then, and their callbacks have run.
        """
        sender = self._running_sender()
        if sender.is_in_loop():
            raise _blocks_itself()
        if not self._limit.wait_until_none(None if timeout_s is None else _bounded(timeout_s)):
            return False
        # The last one made room before its callbacks were called, which may send: let them end.
        self._instance.call(asyncio.sleep(0))
        return True

    def publish_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic, in the order that ``sharding_key`` counts them.

        Raises
        ------
        TopicNotFoundError
            The topic is unknown, and brokers create none.
        """
        self._running_sender()
        route = self._instance.publish_route(
            topic, self.config.default_topic_queue_nums, self.config.create_topic_key
        )
        return self._instance.call(route).publish_queues()

    # What the client asks of its producers.

    def publish_topics(self) -> Collection[str]:
        """Return the topics that were sent to."""
        sender = self._sender
        return sender.topics if sender is not None else ()

    def check_transaction(
        self, message: Message, header: CheckTransactionStateRequestHeader, broker_address: str
    ) -> None:
        """Leave a check unanswered: another producer of the group may know the transaction."""
        logger.warning(
            "%s asks producer %s about a transaction: it is no TransactionProducer",
            broker_address,
            self.group,
        )

    def on_reply(self, message: Message) -> bool:
        """Take the reply to a request; False if it is not this producer's."""
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
                f"a message to topic {outgoing.topic} was not sent: {limit.messages} are under "
                f"way, and there was no room within {wait_s:g} s "
                f"(back_pressure_for_async_send_num={limit.most_messages}, …_size="
                f"{limit.most_bytes})"
            )

    def _submit(self, sender: MessageSender, sending: AsyncSending | OnewaySending) -> None:
        try:
            sender.submit(sending)
        except BaseException:
            self._limit.release(len(sending.message.body))
            raise


def _bounded(timeout_s: float) -> float:
    """Return a time that threads can wait for; refuse before anything is sent what is no time."""
    if not isinstance(timeout_s, (int, float)) or math.isnan(timeout_s):
        raise ClientError(f"timeout_s: seconds are expected, not {timeout_s!r}")
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
        raise ClientError(f"sharding_key: a text is expected, not {sharding_key!r}")
    if queue is not None and sharding_key is not None:
        raise ClientError("only one of queue and sharding_key may be given")
    if queue is not None and queue.topic != outgoing.topic:
        raise ClientError(f"a message to topic {outgoing.topic} cannot be sent to {queue}")


def _blocks_itself() -> ClientError:
    return ClientError(
        "a blocking call in the client's network thread would wait for itself: use send_async "
        "in callbacks, or another thread"
    )
