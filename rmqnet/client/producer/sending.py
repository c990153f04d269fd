"""One message on its way, and how whoever sent it learns what became of it."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Callable, Protocol

from rmqnet.errors import RemotingTimeoutError

if TYPE_CHECKING:
    import asyncio

    from rmqnet.client.message_queue import MessageQueue
    from rmqnet.client.producer.outgoing_message import OutgoingMessage
    from rmqnet.client.send_result import SendResult
    from rmqnet.errors import SendAttempt
    from rmqnet.remoting.remoting_command import RemotingCommand

logger = logging.getLogger(__name__)
_GRACE_S = 2.0
"""More than the event loop is ever late; who waits longer waits for a loop that is gone."""


class ResponseHandler(Protocol):
    """Whoever sends, and looks at answers."""

    def on_response(self, sending: Sending, answer: asyncio.Future[RemotingCommand]) -> None:
        """Go on with a message after an answer, or none, came."""


class Sending:
    """One message, or batch, and how far it is. Changed in the event loop only.

    Parameters
    ----------
    queue
        Where it must go; None: anywhere, or as the key says. No further try then.
    sharding_key
        Chooses the queue; None: all in turn.
    """

    __slots__ = (
        "address",
        "attempts",
        "began_at",
        "deadline",
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
        self.stored: SendResult | None = None

    def on_answer(self, answer: asyncio.Future[RemotingCommand]) -> None:
        """Go on after an answer, or none, came."""
        self.sender.on_response(self, answer)

    def finish(self, result: SendResult | None, error: BaseException | None) -> None:
        """Tell whoever waits: a result, an error, or (one-way) neither."""
        raise NotImplementedError


class SyncSending(Sending):
    """A message whose sender waits in its own thread."""

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
        """Wake the thread that waits."""
        self._result, self._error = result, error
        self._done.release()

    def wait(self) -> SendResult:
        """Return the result, or raise the error."""
        left_s = self.deadline - time.monotonic() + _GRACE_S
        if not self._done.acquire(timeout=max(left_s, 0)):
            raise RemotingTimeoutError(
                f"a message to topic {self.message.topic} was given up: the client's event loop "
                "does not run any more, or something blocks it"
            )
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the error's traceback holds this, and this the error
        assert self._result is not None
        return self._result


class AsyncSending(Sending):
    """A message whose sender has a future."""

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
        self.future.set_running_or_notify_cancel()  # what is on its way cannot be called back

    def finish(self, result: SendResult | None, error: BaseException | None) -> None:
        """Make room for another message, and hand the outcome to the future."""
        self._limit.release(self._size)
        try:
            if error is not None:
                self.future.set_exception(error)
            else:
                assert result is not None
                self.future.set_result(result)
        except (SystemExit, KeyboardInterrupt):  # of a callback: it would end the event loop
            logger.exception("a callback of a message to topic %s", self.message.topic)


class OnewaySending(Sending):
    """A message whose sender does not want to know."""

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
        """Make room for another message."""
        self._limit.release(self._size)


class InFlightLimit:
    """A bound on messages whose outcome is not known yet. Thread-safe.

    Parameters
    ----------
    most_messages, most_bytes
        At most so many; one message alone is let pass however long it is.
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
        """How many are on their way."""
        return self._messages

    def acquire(self, size: int, timeout_s: float) -> bool:
        """Wait until there is room for so many bytes; False if there is none in time."""
        with self._changed:
            if self._has_room(size) or self._wait(lambda: self._has_room(size), timeout_s):
                self._messages += 1
                self._bytes += size
                return True
        return False

    def release(self, size: int) -> None:
        """Note that the outcome of a message is known."""
        with self._changed:
            self._messages -= 1
            self._bytes -= size
            if self._waiting:
                self._changed.notify_all()

    def wait_until_none(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is on its way; False if there still is, in time."""
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
