# SPDX-License-Identifier: Apache-2.0
"""One connection to a server: concurrent requests to it, and requests that it sends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any, Callable, ClassVar, Optional, Protocol, cast

from rmqnet.errors import RemotingConnectError, RemotingFormatError, RemotingTimeoutError
from rmqnet.remoting.codes import ResponseCode, request_name
from rmqnet.remoting.frame_codec import FrameDecoder

if TYPE_CHECKING:
    from rmqnet.remoting.remoting_command import RemotingCommand

logger = logging.getLogger(__name__)

_WRITE_BUFFER_BYTES = 1 << 20
_JOINED_BYTES = 1 << 16
_CLOCK_SECONDS = 0.002  # timers of the loop may fire this early
_MIN_SILENCE_SECONDS = 1.0

OnEnd = Callable[[Optional["RemotingCommand"], Optional[Exception]], object]
"""Takes the answer to a request, or the error that it ended with."""


class WaitingRequest:
    """A request that waits for its answer.

    Parameters
    ----------
    on_end
        Called in the loop with the answer or the error; it must not raise.
    is_last
        Whether no other request follows in this turn of the loop, so that it is written now.
    """

    __slots__ = (
        "command",
        "deadline",
        "is_last",
        "on_end",
        "opaque",
        "sent_at",
        "timeout_s",
        "was_refused",
    )

    def __init__(
        self,
        command: RemotingCommand,
        timeout_s: float,
        now: float,
        on_end: OnEnd,
        *,
        is_last: bool = False,
    ) -> None:
        self.command = command
        self.timeout_s = timeout_s
        self.deadline = now + timeout_s
        self.on_end = on_end
        self.is_last = is_last
        self.opaque = 0  # as sent; the command may have been resent since
        self.sent_at = 0.0
        self.was_refused = False  # by a server that goes away; it is resent only once

    @property
    def is_wanted(self) -> bool:
        """Whether its caller still waits."""
        return True

    def answer(self, response: RemotingCommand) -> None:
        """Give the answer to the caller."""
        self.on_end(response, None)

    def fail(self, error: Exception) -> None:
        """Give an error to the caller."""
        self.on_end(None, error)


class AwaitedRequest(WaitingRequest):
    """A request whose caller awaits a future, which it may cancel."""

    __slots__ = ("future",)

    def __init__(
        self, command: RemotingCommand, timeout_s: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(command, timeout_s, loop.time(), self._settle)
        self.future: asyncio.Future[RemotingCommand] = loop.create_future()

    @property
    def is_wanted(self) -> bool:
        """Whether its caller still waits."""
        return not self.future.done()

    def _settle(self, response: RemotingCommand | None, error: Exception | None) -> None:
        if self.future.done():
            return
        if response is not None:
            self.future.set_result(response)
        elif error is not None:
            self.future.set_exception(error)


class ConnectionOwner(Protocol):
    """Creator of a connection; the connection calls it in the loop."""

    def note_open(self, connection: RemotingConnection) -> None:
        """Keep the connection until it has ended."""

    def note_request(self, connection: RemotingConnection, command: RemotingCommand) -> None:
        """Process a request of the server."""

    def note_refused(self, connection: RemotingConnection, request: WaitingRequest) -> None:
        """Resend a request over another connection: the server of this one goes away."""

    def note_closed(self, connection: RemotingConnection) -> None:
        """Forget the connection: it has ended."""


class RemotingConnection(asyncio.Protocol):
    """One connection; all calls are made in its loop.

    The first frame in a turn of the loop is written immediately; further frames of the same turn
    are written together, by one system call.

    Parameters
    ----------
    max_idle_s
        Seconds without traffic after which it is closed; 0 for no limit.
    """

    PEER: ClassVar[str] = "server"
    """Name of the other side in messages."""

    def __init__(
        self, address: str, owner: ConnectionOwner, max_frame_bytes: int, max_idle_s: float
    ) -> None:
        self.address = address
        self.waiting: dict[int, WaitingRequest] = {}  # by opaque
        self.is_open = False
        self.is_writable = False  # open, and the server accepts data
        self.has_spoken = False  # a frame of the server arrived
        self.reason = ""  # why it was closed from this side
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(address, max_frame_bytes)
        self._max_idle_s = max_idle_s
        self._transport: asyncio.Transport | None = None
        self._socket: Any = None  # asyncio's TLS no longer returns it after two closes
        self._frames: list[bytes] = []  # to be written together
        self._joined_bytes = 0
        self._is_joining = False
        self._is_retired = False
        self._resumed: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._active_at = self._loop.time()
        self._received_at = 0.0  # never

    # Called by the client.

    async def writable(self) -> None:
        """Wait until the server accepts more, or the connection has ended."""
        if self.is_open and not self.is_writable:
            await asyncio.shield(self._resumed)

    def send(self, request: WaitingRequest, frame: bytes) -> None:
        """Send a request, which fails if no answer comes by its deadline."""
        request.opaque = request.command.opaque
        request.sent_at = self._loop.time()
        self.waiting[request.opaque] = request
        timer = self._deadline_timer
        if timer is None or request.deadline < timer.when():
            self._set_deadline(request.deadline)
        if request.is_last:
            self.join(frame)
            self.flush()
        else:
            self.write(frame)

    def write(self, frame: bytes) -> None:
        """Send a frame, without waiting for an answer."""
        self.join(frame)
        if not self._is_joining:
            self._is_joining = True
            self._loop.call_soon(self._end_turn)
            self.flush()

    def join(self, frame: bytes) -> None:
        """Keep a frame until `flush`; a closed connection drops it."""
        if not self.is_open:
            return  # its requests fail, or have failed already
        self._frames.append(frame)
        self._joined_bytes += len(frame)
        if self._joined_bytes > _JOINED_BYTES:  # so that the transport can pause writing
            self.flush()

    def flush(self) -> None:
        """Send the joined frames now."""
        transport = self._transport
        if self._frames and transport is not None and not transport.is_closing():
            frames, self._frames = self._frames, []
            self._joined_bytes = 0
            self._active_at = self._loop.time()
            transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def retire(self) -> None:
        """Close it as soon as no request waits."""
        self._is_retired = True
        self._close_if_done()

    def close(self, reason: str) -> None:
        """Close it; its waiting requests fail when it has ended."""
        if self._transport is not None:
            self.reason = self.reason or reason
            self.flush()
            if not self._transport.is_closing():
                self._transport.close()
            self._take_no_more()

    def abort(self) -> None:
        """Close it immediately; unsent frames are dropped."""
        if self._transport is not None:
            self._transport.abort()
            self._shut_down()  # asyncio's TLS ignores an abort after two closes
            self._take_no_more()

    async def wait_closed(self) -> None:
        """Wait until it has ended."""
        await asyncio.shield(self._closed)

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare the transport, and notify the owner."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no such class
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._socket = transport.get_extra_info("socket")
        self.is_open = self.is_writable = True
        if self._max_idle_s:
            self._idle_timer = self._loop.call_later(self._max_idle_s, self._check_idle)
        self._owner.note_open(self)

    def data_received(self, data: bytes) -> None:
        """Give complete answers to their callers, and requests to the owner."""
        self._received_at = self._active_at = self._loop.time()
        try:
            commands = self._decoder.feed(data)
        except RemotingFormatError as err:
            self._tell(err)
            self.reason = str(err)
            self.abort()
            return
        for command in commands:
            self.has_spoken = True
            if command.is_response:
                self._take_answer(command)
            else:
                self._owner.note_request(self, command)
        if self._is_retired:
            self._close_if_done()

    def pause_writing(self) -> None:
        """Make requests wait while the server accepts no data."""
        self.is_writable = False
        self._resumed = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let waiting requests continue."""
        self.is_writable = self.is_open
        self._wake_writers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the owner, and fail the waiting requests."""
        if self._transport is not None:
            self._shut_down()
            self._transport.close()  # else TLS warns before Python 3.11
        self._transport = None
        self._frames.clear()
        for timer in (self._deadline_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self._take_no_more()
        self._owner.note_closed(self)
        reason = self.reason or (str(exc) if exc else f"the {self.PEER} closed it")
        self._fail_waiting(reason)
        if not self._closed.done():
            self._closed.set_result(None)

    # Internals.

    def _shut_down(self) -> None:
        """Shut down the socket: a forked child that shares it would keep the connection open.

        With TLS it may be closed already, after an alert to the peer.
        """
        if self._socket is not None:
            # uvloop's own sockets cannot be shut down, but a duplicate can.
            with contextlib.suppress(OSError), self._socket.dup() as same:  # it has ended already
                same.shutdown(socket.SHUT_RDWR)

    def _tell(self, err: RemotingFormatError) -> None:
        """Log bytes that are not a frame."""
        logger.warning("%s", err)

    def _take_no_more(self) -> None:
        self.is_open = self.is_writable = False
        self._wake_writers()

    def _wake_writers(self) -> None:
        if not self._resumed.done():
            self._resumed.set_result(None)

    def _take_answer(self, response: RemotingCommand) -> None:
        request = self.waiting.pop(response.opaque, None)
        if request is None:
            logger.debug("%s: an answer that no request waits for: %r", self.address, response)
        elif response.code == ResponseCode.GO_AWAY:
            self._owner.note_refused(self, request)
        else:
            request.answer(response)

    def _end_turn(self) -> None:
        self._is_joining = False
        self.flush()

    def _close_if_done(self) -> None:
        if self._is_retired and not self.waiting:
            self.close("the server is going away")

    def _fail_waiting(self, reason: str) -> None:
        waiting, self.waiting = self.waiting, {}
        for request in waiting.values():
            name = request_name(request.command.code)
            request.fail(
                RemotingConnectError(
                    f"the connection to {self.address} ended before {name} was answered: {reason}"
                )
            )

    def _set_deadline(self, deadline: float) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._deadline_timer = self._loop.call_at(deadline, self._fail_late)

    def _fail_late(self) -> None:
        """Fail the requests whose time is up; a connection has one timer for all."""
        self._deadline_timer = None
        now = self._loop.time() + _CLOCK_SECONDS
        late = [request for request in self.waiting.values() if request.deadline <= now]
        for request in late:
            del self.waiting[request.opaque]
        if self.waiting:
            self._set_deadline(min(map(_deadline, self.waiting.values())))
        if any(map(self._was_silent_since, late)):
            self.reason = "the server was silent"
            self.abort()  # first: what is sent again now has to go over another connection
        for request in sorted(late, key=_deadline):
            name = request_name(request.command.code)
            request.fail(
                RemotingTimeoutError(
                    f"{self.address} did not answer {name} within {request.timeout_s:g} s"
                )
            )
        self._close_if_done()

    def _was_silent_since(self, request: WaitingRequest) -> bool:
        """Return whether no byte came during a request of 1 s or more: the peer may be gone."""
        is_long = request.deadline - request.sent_at >= _MIN_SILENCE_SECONDS
        return is_long and self._received_at <= request.sent_at

    def _check_idle(self) -> None:
        idle = self._loop.time() - self._active_at
        left = self._max_idle_s - idle
        if left <= _CLOCK_SECONDS and not self.waiting:
            self.close(f"nothing was sent or received for {self._max_idle_s:g} s")
            return
        left = left if left > _CLOCK_SECONDS else self._max_idle_s
        self._idle_timer = self._loop.call_later(left, self._check_idle)


def _deadline(request: WaitingRequest) -> float:
    return request.deadline
