# SPDX-License-Identifier: Apache-2.0
"""A server of many clients: one event loop for sockets and frames, thread pools for the work.

Source of the behaviour: RocketMQ ``NettyRemotingServer``, ``NettyRemotingAbstract`` (release
5.3.3).
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
from collections import deque
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from rmqnet.errors import ClientError, RemotingConnectError, RemotingError
from rmqnet.remoting.codes import RequestCode, ResponseCode
from rmqnet.remoting.current_request import working_for
from rmqnet.remoting.event_loop import new_event_loop
from rmqnet.remoting.frame_codec import MAX_FRAME_BYTES, encode_frame
from rmqnet.remoting.listener import Listener
from rmqnet.remoting.remoting_command import ONEWAY_FLAG, RESPONSE_FLAG, RemotingCommand
from rmqnet.remoting.remoting_connection import AwaitedRequest, RemotingConnection
from rmqnet.remoting.server_connection import ServerConnection
from rmqnet.remoting.shared_limit import SharedLimit
from store_core.event_loop_thread import EventLoopThread

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from rmqnet.errors import RemotingFormatError
    from rmqnet.remoting.remoting_connection import WaitingRequest
    from rmqnet.remoting.worker_pool import WorkerPool

logger = logging.getLogger(__name__)

_MAX_OPAQUE = (1 << 31) - 1
_VIP_STEP, _VIP_TRIES = 2, 20
_CLOSE_SECONDS = 1.0
_MOST_TOLD = 1000

Handler = Callable[[ServerConnection, RemotingCommand], Optional[RemotingCommand]]
"""Takes a client and its request; returns the answer, or None if it comes later or never."""

Gate = Callable[[ServerConnection, RemotingCommand], Optional[RemotingCommand]]
"""Takes a client and its request; returns the answer that refuses it, or None."""


@dataclass(frozen=True)
class RemotingServerConfig:
    """Limits of a server.

    Parameters
    ----------
    max_idle_s
        Seconds without traffic after which a client is disconnected
        (``serverChannelMaxIdleTimeSeconds``); 0 for no limit.
    max_held_bytes
        Limit on the incomplete requests of all clients together; beyond it, the client with the
        most bytes is disconnected.
    max_all_unread_bytes
        Limit on the unread answers of all clients together; beyond it, the client with the most
        bytes is disconnected.
    """

    max_connections: int = 5000
    max_idle_s: float = 120.0
    max_frame_bytes: int = MAX_FRAME_BYTES
    max_held_bytes: int = 256 << 20
    max_under_way: int = 4096
    max_under_way_bytes: int = 512 << 20
    max_unread_bytes: int = 32 << 20
    max_all_unread_bytes: int = 512 << 20
    handshake_timeout_s: float = 10.0


class _Route(NamedTuple):
    handler: Handler
    pool: WorkerPool | None


class RemotingServer:
    """Answers requests of clients, and sends them requests.

    Parameters
    ----------
    name
        Name of the thread, also used in errors.
    tls
        Encryption of connections; they are unencrypted if None.
    """

    def __init__(
        self,
        name: str,
        config: RemotingServerConfig | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._name = name
        self._config = config or RemotingServerConfig()
        self._tls = tls
        self._routes: dict[int, _Route] = {}
        self._gate: Gate | None = None
        self._close_listeners: list[Callable[[ServerConnection], object]] = []
        self._thread = EventLoopThread(name, new_event_loop)
        self._coming: set[ServerConnection] = set()  # still in the handshake
        self._connections: set[ServerConnection] = set()
        self._held = SharedLimit(
            f"{name}: incomplete requests",
            "its request did not arrive completely",
            self._config.max_held_bytes,
        )
        self._unread = SharedLimit(
            f"{name}: unread answers",
            "it does not read its answers",
            self._config.max_all_unread_bytes,
        )
        self._under_way_bytes = 0
        self._opaques = itertools.count(1)
        self._answers: deque[tuple[ServerConnection, RemotingCommand | None, bytes]] = deque()
        self._is_writing_soon = False
        self._listeners: list[Listener] = []
        self._refused = 0
        self._garbage: set[str] = set()  # hosts that sent bytes that are no frame

    # Called by the owner of the server, before it starts or from any thread.

    def register(
        self, codes: Iterable[int], handler: Handler, pool: WorkerPool | None = None
    ) -> None:
        """Register the handler of requests with these codes.

        Parameters
        ----------
        handler
            Called in a thread of the pool; without a pool in the loop, which it must not block.
        """
        for code in codes:
            self._routes[int(code)] = _Route(handler, pool)

    def use_gate(self, gate: Gate | None) -> None:
        """Make a gate check every request, in the loop, before it is processed."""
        self._gate = gate

    def on_close(self, callback: Callable[[ServerConnection], object]) -> None:
        """Register a function to call, in the loop, with each connection that ends."""
        self._close_listeners.append(callback)

    @property
    def is_running(self) -> bool:
        """Whether it is bound to an address; False in a forked child, whose parent owns it."""
        return self._thread.is_running

    @property
    def connections(self) -> int:
        """Number of connected clients."""
        return len(self._connections)

    def start(self, host: str, port: int) -> int:
        """Bind an address and serve clients; see `bind`."""
        port = self.bind(host, port)
        self.serve()
        return port

    def bind(self, host: str, port: int, *, vip_channel: bool = False) -> int:
        """Bind an address, which refuses clients until `serve`; return the port.

        Parameters
        ----------
        host, port
            Address to listen at; port 0 takes any free port.
        vip_channel
            Also listen at the port minus 2, where RocketMQ's slaves ask their master for its topics
            (``MixAll.brokerVIPChannel``).

        Raises
        ------
        ClientError
            The server cannot listen at the address; the message names it.
        """
        self._answers.clear()  # those given after a stop
        self._under_way_bytes = 0
        self._is_writing_soon = False
        self._thread.start()
        try:
            return self._thread.submit(self._listen_to_all(host, port, vip_channel)).result()
        except OSError as err:
            self._thread.shutdown()
            raise ClientError(f"{self._name} cannot listen at {host}:{port}: {err}") from err

    def serve(self) -> None:
        """Accept clients at the address of `bind`."""
        for listener in self._listeners:
            self._thread.submit(listener.start_serving()).result()

    def shutdown(self) -> None:
        """Stop listening, and disconnect all clients; a second call does nothing."""
        if self._thread.is_running:
            self._thread.submit(self._close()).result()
            self._thread.shutdown()

    def answer(
        self, connection: ServerConnection, request: RemotingCommand, response: RemotingCommand
    ) -> None:
        """Answer a request later, from any thread; one-way requests get no answer.

        Answers that several threads give at nearly the same time are written together.
        """
        frame = b"" if request.is_oneway else self._answer_frame(connection, request, response)
        self._write_soon(connection, request, frame)

    def release(self, connection: ServerConnection, request: RemotingCommand) -> None:
        """Finish a request without an answer, from any thread.

        Only for requests whose handler returned None and that are not one-way.
        """
        self._write_soon(connection, request, b"")

    def disconnect(self, connection: ServerConnection, reason: str) -> None:
        """Close the connection of a client, from any thread."""
        self._thread.call(connection.close, reason)

    def notify(self, connection: ServerConnection, command: RemotingCommand) -> None:
        """Send a client a one-way request, from any thread.

        It is sent before any answer that the same thread gives afterwards.
        """
        command.flag |= ONEWAY_FLAG
        try:
            frame = self._frame(command)
        except RemotingError as err:
            logger.warning("cannot send to %s: %s", connection.address, err)
        else:
            self._write_soon(connection, None, frame)

    async def invoke(
        self, connection: ServerConnection, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Send a client a request, and return its answer; called in the loop.

        Raises
        ------
        RemotingConnectError
            The client is not connected, or leaves before it answers.
        RemotingTimeoutError
            It did not answer in time.
        """
        if not connection.is_open:
            raise RemotingConnectError(f"{connection.address} is not connected")
        command.flag &= ~ONEWAY_FLAG
        request = AwaitedRequest(command, timeout_s, asyncio.get_running_loop())
        connection.send(request, self._frame(command))
        return await request.future

    def ask(
        self, connection: ServerConnection, command: RemotingCommand, timeout_s: float
    ) -> RemotingCommand:
        """Do as `invoke`, called from any other thread."""
        try:
            answer = self._thread.submit(self.invoke(connection, command, timeout_s))
        except RuntimeError as err:
            raise RemotingConnectError(f"{connection.address} is not connected: {err}") from err
        try:
            return answer.result()
        except CancelledError as err:
            raise RemotingConnectError(f"{self._name} has stopped") from err

    # Called by connections, in the loop.

    def note_open(self, connection: RemotingConnection) -> None:
        """Keep a client until it leaves."""
        assert isinstance(connection, ServerConnection)
        self._coming.discard(connection)
        self._connections.add(connection)

    def note_request(self, connection: RemotingConnection, command: RemotingCommand) -> None:
        """Check a request, and pass it to its handler."""
        assert isinstance(connection, ServerConnection)
        self._note_begun(connection, command)
        refusal = None if self._gate is None else _respond(self._gate, connection, command)
        route = self._routes.get(command.code)
        if refusal is not None:
            self._write(connection, command, refusal)
        elif self._under_way_bytes > self._config.max_under_way_bytes:
            remark = (
                f"requests of {self._config.max_under_way_bytes} bytes are being processed: try "
                "again"
            )
            self._refuse(connection, command, ResponseCode.SYSTEM_BUSY, remark)
        elif route is None:
            name = _name_of(command.code)
            remark = f"request type {command.code} ({name}) not supported"
            self._refuse(connection, command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif route.pool is None:
            response = _respond(route.handler, connection, command)
            if response is not None or command.is_oneway:
                self._write(connection, command, response)
        elif not route.pool.submit(
            functools.partial(self._work, connection, command, route.handler)
        ):
            remark = f"{route.pool.capacity} requests wait for {route.pool.name}: try again"
            self._refuse(connection, command, ResponseCode.SYSTEM_BUSY, remark)

    def note_refused(self, connection: RemotingConnection, request: WaitingRequest) -> None:
        """Fail a request that a client refuses."""
        request.fail(RemotingConnectError(f"{connection.address} is going away"))

    def note_held(self, connection: ServerConnection, held_bytes: int) -> None:
        """Count the bytes of an incomplete request."""
        self._held.note(connection, held_bytes)

    def note_garbage(self, connection: ServerConnection, err: RemotingFormatError) -> None:
        """Log bytes that are no frame; as a warning only once per host, which may retry forever."""
        is_first = connection.host not in self._garbage and len(self._garbage) < _MOST_TOLD
        if is_first:
            self._garbage.add(connection.host)
        logger.log(logging.WARNING if is_first else logging.DEBUG, "%s", err)

    def note_unread(self, connection: ServerConnection, unread_bytes: int) -> None:
        """Count the bytes of a client's unread answers."""
        self._unread.note(connection, unread_bytes)

    def note_closed(self, connection: RemotingConnection) -> None:
        """Forget a client."""
        assert isinstance(connection, ServerConnection)
        self._connections.discard(connection)
        for listener in self._close_listeners:
            try:
                listener(connection)
            except Exception:
                logger.exception(
                    "a listener for the end of the connection of %s failed", connection.address
                )

    # Internals.

    async def _listen_to_all(self, host: str, port: int, vip_channel: bool) -> int:
        """Listen at one or both ports; for port 0, search for two that are free."""
        tries = _VIP_TRIES if vip_channel and port == 0 else 1
        for left in reversed(range(tries)):
            bound = await self._listen(host, port)
            if not vip_channel:
                break
            try:
                await self._listen(host, bound - _VIP_STEP)
                break
            except OSError:
                self._stop_listening()
                if not left:
                    raise
        return bound

    async def _listen(self, host: str, port: int) -> int:
        timeout_s = self._config.handshake_timeout_s
        listener = Listener(
            self._name, self._make_connection, self._coming.discard, self._tls, timeout_s
        )
        bound = await listener.bind(host, port)
        self._listeners.append(listener)
        return bound

    def _make_connection(self, peer: Any) -> ServerConnection | None:
        """Return a connection for a new client; None if there are too many."""
        config = self._config
        if len(self._connections) + len(self._coming) < config.max_connections:
            connection = ServerConnection(
                self,
                peer,
                config.max_frame_bytes,
                config.max_idle_s,
                config.max_under_way,
                config.max_unread_bytes,
            )
            self._coming.add(connection)
            return connection
        self._refused += 1
        if self._refused == 1:
            most = config.max_connections
            logger.warning("%s: %d clients are connected, more are refused", self._name, most)
        return None

    def _stop_listening(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    async def _close(self) -> None:
        listeners = list(self._listeners)
        self._stop_listening()
        self._write_answers()
        for listener in listeners:
            await listener.wait_closed()
        connections = list(self._connections)
        for connection in connections:
            connection.close("the server stops")
        if connections:
            ends = [asyncio.ensure_future(each.wait_closed()) for each in connections]
            _, late = await asyncio.wait(ends, timeout=_CLOSE_SECONDS)
            for connection in list(self._connections):
                connection.abort()
            if late:
                await asyncio.wait(late, timeout=_CLOSE_SECONDS)

    def _work(
        self, connection: ServerConnection, command: RemotingCommand, handler: Handler
    ) -> None:
        """Process a request, in a thread of a pool."""
        if not connection.is_open and not command.is_oneway:
            # Its client has left, perhaps with thousands of requests, while other clients wait.
            self.release(connection, command)
            return
        with working_for(connection):
            response = _respond(handler, connection, command)
        if response is not None:
            self.answer(connection, command, response)
        elif command.is_oneway:
            self._thread.call(self._note_done, connection, command)

    def _note_begun(self, connection: ServerConnection, command: RemotingCommand) -> None:
        self._under_way_bytes += command.frame_bytes
        connection.note_begun()

    def _note_done(self, connection: ServerConnection, command: RemotingCommand) -> None:
        self._under_way_bytes -= command.frame_bytes
        connection.note_done()

    def _refuse(
        self, connection: ServerConnection, command: RemotingCommand, code: int, remark: str
    ) -> None:
        self._write(connection, command, command.refusal(code, remark))

    def _write(
        self,
        connection: ServerConnection,
        command: RemotingCommand,
        response: RemotingCommand | None,
    ) -> None:
        if response is not None and not command.is_oneway:
            connection.write(self._answer_frame(connection, command, response))
        self._note_done(connection, command)

    def _write_soon(
        self, connection: ServerConnection, request: RemotingCommand | None, frame: bytes
    ) -> None:
        """Write an answer, or a notice if there is no request, after those already waiting."""
        self._answers.append((connection, request, frame))
        if not self._is_writing_soon:
            self._is_writing_soon = True
            self._thread.call(self._write_answers)

    def _write_answers(self) -> None:
        self._is_writing_soon = False  # first: later answers schedule a write of their own
        answers = self._answers
        joined: dict[ServerConnection, None] = {}
        while answers:
            connection, request, frame = answers.popleft()
            if frame:
                connection.join(frame)
                joined[connection] = None
            if request is not None:
                self._note_done(connection, request)
        for connection in joined:
            connection.flush()

    def _answer_frame(
        self, connection: ServerConnection, request: RemotingCommand, response: RemotingCommand
    ) -> bytes:
        response.opaque = request.opaque
        response.flag |= RESPONSE_FLAG
        try:
            return encode_frame(response, self._config.max_frame_bytes)
        except RemotingError as err:
            logger.warning("cannot answer %s: %s", connection.address, err)
            code = ResponseCode.SYSTEM_ERROR
            return encode_frame(request.refusal(code, str(err)))

    def _frame(self, command: RemotingCommand) -> bytes:
        command.opaque = next(self._opaques) & _MAX_OPAQUE
        return encode_frame(command, self._config.max_frame_bytes)


def _respond(
    handler: Handler, connection: ServerConnection, command: RemotingCommand
) -> RemotingCommand | None:
    """Return the answer of a handler; its errors become answers, too."""
    try:
        return handler(connection, command)
    except RemotingError as err:  # such as a missing field
        code, remark = ResponseCode.SYSTEM_ERROR, str(err)
    except Exception as err:
        logger.exception("cannot process a request of %s: %r", connection.address, command)
        code, remark = ResponseCode.SYSTEM_ERROR, f"{type(err).__name__}: {err}"
    return command.refusal(code, remark)


def _name_of(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return "unknown"
