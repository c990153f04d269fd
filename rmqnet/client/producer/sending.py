# SPDX-License-Identifier: Apache-2.0
"""The state of one message being sent, and the delivery of its result to the caller."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Callable, Protocol

from rmqnet.errors import RemotingTimeoutError

if TYPE_CHECKING:
    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.producer.outgoing_message import OutgoingMessage
    from rmqnet.client.send_result import SendResult
    from rmqnet.errors import SendAttempt
    from rmqnet.remoting.remoting_command import RemotingCommand

logger = logging.getLogger(__name__)
_GRACE_S = 2.0
"""Longer than any delay of a running event loop; after it the loop is considered gone."""


class ResponseHandler(Protocol):
    """The sender, which handles answers."""

    def on_response(
        self, sending: Sending, response: RemotingCommand | None, error: Exception | None
    ) -> None:
        """Continue a message after an answer or a failure."""


class Sending:
    """State of one message or batch. Only the event loop changes it.

    Parameters
    ----------
    queue
        Required queue, which rules out retries; None for any queue, or the one of the key.
    sharding_key
        Key that chooses the queue and rules out retries; None to use all queues in turn.

    Attributes
    ----------
    is_last
        Whether no other message follows in this turn of the loop.
    """

    __slots__ = (
        "address",
        "attempts",
        "began_at",
        "deadline",
        "is_last",
        "message",
        "queue",
        "retries",
        "sender",
        "sharding_key",
        "started_at",
        "stored",
        "wanted_queue",
    )

    is_oneway = False

    def __init__(
        self,
        sender: ResponseHandler,
        message: OutgoingMessage,
        timeout_s: float,
        retries: int,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        self.sender = sender
        self.message = message
        self.began_at = self.started_at = time.monotonic()
        self.deadline = self.began_at + timeout_s
        self.wanted_queue = queue
        self.sharding_key = sharding_key
        self.retries = 0 if queue is not None or sharding_key is not None else retries
        self.attempts: list[SendAttempt] = []
        self.queue: MessageQueue | None = None
        self.address = ""
        self.is_last = True
        self.stored: SendResult | None = None

    def on_end(self, response: RemotingCommand | None, error: Exception | None) -> None:
        """Continue after an answer or a failure."""
        self.sender.on_response(self, response, error)

    def finish(self, result: SendResult | None, error: BaseException | None) -> None:
        """Deliver a result, an error, or (one-way) neither to the caller."""
        raise NotImplementedError


class SyncSending(Sending):
    """A message whose caller blocks until the result."""

    __slots__ = ("_done", "_error", "_result")

    def __init__(
        self,
        sender: ResponseHandler,
        message: OutgoingMessage,
        timeout_s: float,
        retries: int,
        queue: MessageQueue | None = None,
        sharding_key: str | None = None,
    ) -> None:
        super().__init__(sender, message, timeout_s, retries, queue, sharding_key)
        self._result: SendResult | None = None
        self._error: BaseException | None = None
        self._done = threading.Lock()  # a third of the cost of an Event
        self._done.acquire()

    def finish(self, result: SendResult | None, error: BaseException | None) -> None:
        """Store the outcome and wake the waiting thread."""
        self._result, self._error = result, error
        self._done.release()

    def wait(self) -> SendResult:
        """Wait, then return the result or raise the error."""
        left_s = self.deadline - time.monotonic() + _GRACE_S
        if not self._done.acquire(timeout=max(left_s, 0)):
            raise RemotingTimeoutError(
                f"a message to topic {self.message.topic} was given up: the client's event loop "
                "is no longer running, or something blocks it"
            )
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # avoids a reference cycle through the error's traceback
        assert self._result is not None
        return self._result


class AsyncSending(Sending):
    """A message whose caller gets a future."""

    __slots__ = ("_limit", "_size", "future")

    def __init__(
        self,
        sender: ResponseHandler,
        message: OutgoingMessage,
        timeout_s: float,
        retries: int,
        queue: MessageQueue | None,
        sharding_key: str | None,
        limit: InFlightLimit,
    ) -> None:
        super().__init__(sender, message, timeout_s, retries, queue, sharding_key)
        self._limit = limit
        self._size = len(message.body)
        self.future: Future[SendResult] = Future()
        self.future.set_running_or_notify_cancel()  # a message being sent cannot be cancelled

    def finish(self, result: SendResult | None, error: BaseException | None) -> None:
        """Release the message's room and set the future's result or error."""
        self._limit.release(self._size)
        try:
            if error is not None:
                self.future.set_exception(error)
            else:
                assert result is not None
                self.future.set_result(result)
        except BaseException:  # of a callback: it would end the connection, or the event loop
            logger.exception("a callback of a message to topic %s failed", self.message.topic)


class OnewaySending(Sending):
    """A message whose caller gets no result."""

    __slots__ = ("_limit", "_size")

    is_oneway = True

    def __init__(
        self,
        sender: ResponseHandler,
        message: OutgoingMessage,
        timeout_s: float,
        queue: MessageQueue | None,
        sharding_key: str | None,
        limit: InFlightLimit,
    ) -> None:
        super().__init__(sender, message, timeout_s, 0, queue, sharding_key)
        self._limit = limit
        self._size = len(message.body)

    def finish(self, result: SendResult | None, error: BaseException | None) -> None:
        """Release the message's room."""
        self._limit.release(self._size)


class InFlightLimit:
    """Limits the number and bytes of messages in flight. Thread-safe.

    Parameters
    ----------
    most_messages, most_bytes
        Upper bounds; a single message is accepted whatever its size.
    """

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self.most_messages = most_messages
        self.most_bytes = most_bytes
        self._messages = 0
        self._bytes = 0
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0

    @property
    def messages(self) -> int:
        """Number of messages in flight."""
        return self._messages

    def acquire(self, size: int, timeout_s: float) -> bool:
        """Wait for room for a message of ``size`` bytes; False if there is none in time."""
        with self._changed:
            if self._has_room(size) or self._wait(lambda: self._has_room(size), timeout_s):
                self._messages += 1
                self._bytes += size
                return True
        return False

    def release(self, size: int) -> None:
        """Release the room of a finished message."""
        with self._changed:
            self._messages -= 1
            self._bytes -= size
            if self._waiting:
                self._changed.notify_all()

    def wait_until_none(self, timeout_s: float | None = None) -> bool:
        """Wait until no message is in flight; False if the time ends first."""
        with self._changed:
            return self._messages == 0 or self._wait(lambda: self._messages == 0, timeout_s)

    def _has_room(self, size: int) -> bool:
        if self._messages == 0:
            return True
        return self._messages < self.most_messages and self._bytes + size <= self.most_bytes

    def _wait(self, is_so: Callable[[], bool], timeout_s: float | None) -> bool:
        self._waiting += 1
        try:
            return self._changed.wait_for(is_so, timeout_s)
        finally:
            self._waiting -= 1
