# SPDX-License-Identifier: Apache-2.0
"""A client of any number of servers, in one event loop.

Source of the behaviour: RocketMQ ``NettyRemotingClient`` (release 5.3.3).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import ssl
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from rmqnet.errors import (
    RemotingConnectError,
    RemotingError,
    RemotingTooMuchRequestError,
)
from rmqnet.remoting.acl import sign
from rmqnet.remoting.codes import ResponseCode, request_name
from rmqnet.remoting.frame_codec import MAX_FRAME_BYTES, encode_frame
from rmqnet.remoting.remoting_command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rmqnet.remoting.remoting_connection import (
    AwaitedRequest,
    RemotingConnection,
    WaitingRequest,
)

if TYPE_CHECKING:
    from rmqnet.remoting.acl import AclCredentials
    from rmqnet.remoting.remoting_connection import OnEnd
    from rmqnet.remoting.tls import TlsConfig

logger = logging.getLogger(__name__)

_MAX_OPAQUE = (1 << 31) - 1
_CLOSE_SECONDS = 1.0
_TLS_CLOSE_SECONDS = 0.1
"""Short: RocketMQ's servers do not answer the TLS closure that connections wait for."""
_MAX_PORT = 65535

T = TypeVar("T")

Processor = Callable[[str, RemotingCommand], Awaitable[Optional[RemotingCommand]]]
"""Takes a server's address and request; returns the answer, or None for no answer."""


@dataclass(frozen=True)
class RemotingClientConfig:
    """Limits of a client.

    Parameters
    ----------
    max_idle_s
        Seconds without traffic after which a connection is closed; 0 for no limit.
    min_reconnect_pause_s, max_reconnect_pause_s
        Pause after the first failed attempt to connect, doubled by each further one, and its
        maximum; requests fail immediately during a pause.
    """

    connect_timeout_s: float = 3.0
    max_idle_s: float = 120.0
    min_reconnect_pause_s: float = 0.1
    max_reconnect_pause_s: float = 5.0
    max_waiting_requests: int = 65535
    max_frame_bytes: int = MAX_FRAME_BYTES


class _Server:
    """State of a server apart from its connection."""

    def __init__(self) -> None:
        self.connecting: asyncio.Task[RemotingConnection] | None = None
        self.failures = 0  # consecutive attempts without an answer
        self.retry_at = 0.0
        self.reason = ""
        self.beginning: dict[WaitingRequest, None] = {}  # not sent yet, in order


class RemotingClient:
    """Sends requests to servers by address, and answers their requests.

    It opens one connection per address, when the first request needs it. All calls are made in
    one event loop.

    Parameters
    ----------
    credentials
        Sign every request; requests are unsigned if None.
    tls
        Encryption of connections; they are unencrypted if None.

    Raises
    ------
    ClientError
        A file that ``tls`` names cannot be used.
    """

    def __init__(
        self,
        config: RemotingClientConfig | None = None,
        credentials: AclCredentials | None = None,
        tls: TlsConfig | None = None,
    ) -> None:
        self._config = config or RemotingClientConfig()
        self._credentials = credentials
        self._tls = tls
        self._ssl_context = None if tls is None else tls.ssl_context()
        self._processors: dict[int, Processor] = {}
        self._close_listeners: list[Callable[[str], object]] = []
        self._servers: dict[str, _Server] = {}
        self._connections: dict[str, RemotingConnection] = {}  # those that accept requests
        self._open: set[RemotingConnection] = set()  # including those that start or go away
        self._tasks: set[asyncio.Task[Any]] = set()
        self._opaque = 0
        self._is_closed = False

    def register_processor(self, request_code: int, processor: Processor) -> None:
        """Answer servers' requests with this code; codes without a processor are refused."""
        self._processors[request_code] = processor

    def on_close(self, callback: Callable[[str], object]) -> None:
        """Register a function to call with the address of each connection that ends."""
        self._close_listeners.append(callback)

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Send a request and return the answer, whatever its code.

        Raises
        ------
        RemotingConnectError
            There is no connection, or it ended before the answer arrived.
        RemotingTimeoutError
            The answer did not arrive in time.
        RemotingTooMuchRequestError
            Too many requests are waiting.
        RemotingFormatError
            The frame would be too long.
        """
        command.flag &= ~ONEWAY_FLAG  # it may have been sent as one
        request = AwaitedRequest(command, timeout_s, asyncio.get_running_loop())
        self._start(address, request)
        return await request.future

    def invoke_then(
        self,
        address: str,
        command: RemotingCommand,
        timeout_s: float,
        on_end: OnEnd,
        *,
        is_last: bool,
    ) -> None:
        """Send a request as `invoke` does; without a coroutine, it is cheapest for many requests.

        Parameters
        ----------
        on_end
            Called in the loop with the answer or the error, perhaps before this returns; it must
            not raise.
        is_last
            Whether no other request follows in this turn of the loop.
        """
        command.flag &= ~ONEWAY_FLAG
        now = asyncio.get_running_loop().time()
        self._start(address, WaitingRequest(command, timeout_s, now, on_end, is_last=is_last))

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_s: float) -> None:
        """Send a request that gets no answer; whether it arrives is unknown.

        Raises
        ------
        RemotingConnectError
            There is no connection.
        RemotingTooMuchRequestError
            The server accepted no data within the timeout.
        RemotingFormatError
            The frame would be too long.
        """
        command.flag |= ONEWAY_FLAG
        connection = self._connections.get(address)
        if connection is None or not connection.is_writable:
            deadline = asyncio.get_running_loop().time() + timeout_s
            connection = await self._writable_connection(address, deadline)
        connection.write(self._frame(command))

    async def close(self) -> None:
        """Close all connections; waiting requests fail."""
        self._is_closed = True
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        connections = list(self._open)
        for connection in connections:
            connection.close("the client was closed")
        if connections:
            ends = [asyncio.ensure_future(each.wait_closed()) for each in connections]
            timeout_s = _CLOSE_SECONDS if self._tls is None else _TLS_CLOSE_SECONDS
            _, late = await asyncio.wait(ends, timeout=timeout_s)
            for connection in list(self._open):
                connection.abort()
            await asyncio.gather(*late)

    # Called by connections.

    def note_open(self, connection: RemotingConnection) -> None:
        """Keep a connection until it has ended."""
        self._open.add(connection)
        if self._is_closed:
            connection.abort()

    def note_request(self, connection: RemotingConnection, command: RemotingCommand) -> None:
        """Process a request of a server."""
        processor = self._processors.get(command.code)
        if processor is None:
            logger.info("%s asks for %r: not supported", connection.address, command)
            remark = f"request type {command.code} not supported"
            self._answer(connection, command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif len(self._tasks) >= self._config.max_waiting_requests:
            remark = f"{len(self._tasks)} requests are being processed"
            self._answer(connection, command, ResponseCode.SYSTEM_BUSY, remark)
        else:
            self._run(self._process(connection, command, processor))

    def note_refused(self, connection: RemotingConnection, request: WaitingRequest) -> None:
        """Resend a request over a new connection, once: this one's server goes away."""
        address = connection.address
        if self._connections.get(address) is connection:
            logger.info("%s is going away", address)
            del self._connections[address]
        connection.retire()
        if request.was_refused:
            name = request_name(request.command.code)
            request.fail(RemotingConnectError(f"{address} refused {name} twice: it is going away"))
        else:
            request.was_refused = True
            self._start(address, request)

    def note_closed(self, connection: RemotingConnection) -> None:
        """Forget a connection."""
        address = connection.address
        self._open.discard(connection)
        if self._connections.get(address) is connection:
            del self._connections[address]
        server = self._server(address)
        if connection.has_spoken:
            server.failures, server.retry_at = 0, 0.0
        elif not connection.reason:
            self._note_failure(server, "it closed the connection without an answer")
        logger.info("the connection to %s ended", address)
        for listener in self._close_listeners:
            try:
                listener(address)
            except Exception:
                logger.exception("a listener for the end of the connection to %s failed", address)

    # Internals.

    def _start(self, address: str, request: WaitingRequest) -> None:
        connection = self._connections.get(address)
        beginning = self._server(address).beginning
        # Waiting requests go first, so that those of one caller stay in order.
        if connection is not None and connection.is_writable and not beginning:
            self._send(connection, request)
        elif len(self._tasks) >= self._config.max_waiting_requests:
            request.fail(self._too_many(address))
        else:
            beginning[request] = None
            task = self._run(self._start_later(address, request, beginning))
            task.add_done_callback(
                functools.partial(_fail_if_cancelled, address, request, beginning)
            )

    async def _start_later(
        self, address: str, request: WaitingRequest, beginning: dict[WaitingRequest, None]
    ) -> None:
        try:
            while request in beginning:  # the first task to resume sends for all
                connection = await self._writable_connection(address, request.deadline)
                while beginning and connection.is_writable:
                    first = next(iter(beginning))
                    del beginning[first]
                    if first.is_wanted:
                        self._send(connection, first)
        except Exception as err:  # any error: a caller waits for it
            if request in beginning:
                del beginning[request]
                request.fail(err)

    def _send(self, connection: RemotingConnection, request: WaitingRequest) -> None:
        if len(connection.waiting) >= self._config.max_waiting_requests:
            request.fail(self._too_many(connection.address))
            return
        try:
            frame = self._frame(request.command)
        except Exception as err:  # any error: a caller waits for it
            request.fail(err)
            return
        connection.send(request, frame)

    def _frame(self, command: RemotingCommand) -> bytes:
        self._opaque = command.opaque = (self._opaque + 1) & _MAX_OPAQUE
        if self._credentials is not None:
            sign(command, self._credentials)
        return encode_frame(command, self._config.max_frame_bytes)

    async def _writable_connection(self, address: str, deadline: float) -> RemotingConnection:
        while True:  # again if an idle connection is closed at this moment
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await self._within(
                    asyncio.shield(self._connecting(address)),
                    deadline,
                    RemotingConnectError(f"{address}: not connected in time"),
                )
            if connection.is_writable:
                return connection
            await self._within(connection.writable(), deadline, self._too_many(address))

    async def _within(self, work: Awaitable[Any], deadline: float, error: RemotingError) -> Any:
        left = deadline - asyncio.get_running_loop().time()
        try:
            return await asyncio.wait_for(work, left)
        except asyncio.TimeoutError:
            raise error from None

    def _connecting(self, address: str) -> asyncio.Task[RemotingConnection]:
        """Return the attempt to connect that is in progress; start one if there is none."""
        if self._is_closed:
            raise RemotingConnectError(f"{address}: the client was closed")
        server = self._server(address)
        if server.connecting is None:
            self._check_pause(address, server)
            server.connecting = self._run(self._connect(address, server))
        return server.connecting

    def _check_pause(self, address: str, server: _Server) -> None:
        pause = server.retry_at - asyncio.get_running_loop().time()
        if pause > 0:
            raise RemotingConnectError(
                f"no attempt to connect to {address} for another {pause:.1f} s after "
                f"{server.failures} failed ones; the last one: {server.reason}"
            )

    async def _connect(self, address: str, server: _Server) -> RemotingConnection:
        try:
            connection = await asyncio.wait_for(
                self._open_connection(address), self._config.connect_timeout_s
            )
        except (OSError, UnicodeError, asyncio.TimeoutError) as err:  # includes unknown host names
            reason = self._why(err)
            self._note_failure(server, reason)
            raise RemotingConnectError(f"cannot connect to {address}: {reason}") from err
        finally:
            server.connecting = None
        if connection.is_open:
            self._connections[address] = connection
        logger.info("connected to %s", address)
        return connection

    async def _open_connection(self, address: str) -> RemotingConnection:
        host, port = _host_and_port(address)
        name = None
        if self._tls is not None:
            name = self._tls.server_hostname or host
        config = self._config
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: RemotingConnection(address, self, config.max_frame_bytes, config.max_idle_s),
            host,
            port,
            ssl=self._ssl_context,
            server_hostname=name,
        )
        return connection

    def _note_failure(self, server: _Server, reason: str) -> None:
        config = self._config
        pause = min(
            config.min_reconnect_pause_s * 2.0 ** min(server.failures, 30),
            config.max_reconnect_pause_s,
        )
        server.failures += 1
        server.reason = reason
        server.retry_at = asyncio.get_running_loop().time() + pause

    def _why(self, err: Exception) -> str:
        if isinstance(err, asyncio.TimeoutError):
            return f"nothing was received within {self._config.connect_timeout_s:g} s"
        if isinstance(err, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not accepted ({err.verify_message}); ca_file names the "
                "authorities to trust, server_hostname the name to expect"
            )
        if isinstance(err, ssl.SSLError):
            return f"TLS failed ({err.reason or err}); does this port speak TLS?"
        return str(err) or type(err).__name__

    async def _process(
        self, connection: RemotingConnection, command: RemotingCommand, processor: Processor
    ) -> None:
        try:
            response = await processor(connection.address, command)
        except Exception as err:
            logger.exception("cannot process a request of %s: %r", connection.address, command)
            remark = f"{type(err).__name__}: {err}"
            self._answer(connection, command, ResponseCode.SYSTEM_ERROR, remark)
        else:
            if response is not None and not command.is_oneway:
                self._write_answer(connection, command, response)

    def _answer(
        self, connection: RemotingConnection, command: RemotingCommand, code: int, remark: str
    ) -> None:
        if not command.is_oneway:
            response = command.refusal(code, remark)
            self._write_answer(connection, command, response)

    def _write_answer(
        self, connection: RemotingConnection, command: RemotingCommand, response: RemotingCommand
    ) -> None:
        response.opaque = command.opaque
        response.flag |= RESPONSE_FLAG
        try:
            connection.write(encode_frame(response, self._config.max_frame_bytes))
        except RemotingError as err:
            logger.warning("cannot answer %s: %s", connection.address, err)

    def _server(self, address: str) -> _Server:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = _Server()
        return server

    def _too_many(self, address: str) -> RemotingTooMuchRequestError:
        return RemotingTooMuchRequestError(
            f"{address}: {self._config.max_waiting_requests} requests wait for it, or it reads "
            "nothing; the request was not sent"
        )

    def _run(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: a waiting caller has it


def _fail_if_cancelled(
    address: str,
    request: WaitingRequest,
    beginning: dict[WaitingRequest, None],
    task: asyncio.Task[None],
) -> None:
    # Not in the task itself, which may be cancelled before it starts.
    if task.cancelled() and request in beginning:
        del beginning[request]
        request.fail(RemotingConnectError(f"{address}: the client was closed"))


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > _MAX_PORT:
        raise RemotingConnectError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
