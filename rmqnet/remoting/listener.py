# SPDX-License-Identifier: Apache-2.0
"""Accepts clients, and leaves enough descriptors for the files of a store."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import ssl

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_A_TURN = 64
"""Clients accepted in one turn of the loop, before connected ones are served."""

_LEFT_OF, _LEAST_LEFT = 4, 32
_REST_SECONDS = 1.0


class Listener:
    """Listens at one port; all methods are called in the loop of `bind`.

    A process without a free descriptor cannot open the next file of its store. A client whose
    socket gets one of the last quarter of the process's descriptors (``ulimit -n``; at least 32)
    is therefore disconnected immediately.

    Parameters
    ----------
    make_protocol
        Takes a client's address, and returns its protocol, or None to disconnect the client.
    tls, handshake_timeout_s
        Encryption of connections, None for no encryption; seconds that a TLS handshake may take.
    """

    def __init__(
        self,
        name: str,
        make_protocol: Callable[[Any], asyncio.Protocol | None],
        forget: Callable[[Any], object],
        tls: ssl.SSLContext | None,
        handshake_timeout_s: float,
    ) -> None:
        self._name = name
        self._make_protocol, self._forget = make_protocol, forget
        self._tls, self._handshake_timeout_s = tls, handshake_timeout_s
        self._sockets: list[socket.socket] = []
        self._begins: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._told: set[str] = set()

    async def bind(self, host: str, port: int) -> int:
        """Bind an address, which refuses clients until `start_serving`; return the port.

        Raises
        ------
        OSError
            The address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        bound = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        try:
            for each in bound.sockets:
                self._sockets.append(socket.socket(fileno=os.dup(each.fileno())))
        finally:
            bound.close()
        return int(self._sockets[0].getsockname()[1])

    async def start_serving(self) -> None:
        """Accept clients."""
        for each in self._sockets:
            each.listen(_BACKLOG)
            self._watch(each)

    def close(self) -> None:
        """Accept no more clients."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        # Without TLS they are connected by now, and uvloop would not report the end of such a one.
        if self._tls is not None:
            for begin in self._begins:
                begin.cancel()

    async def wait_closed(self) -> None:
        """Wait, after `close`, until each accepted client is connected or gone."""
        if self._begins:
            await asyncio.wait(self._begins)

    def _watch(self, listening: socket.socket) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accept the clients that wait, up to `_A_TURN`."""
        most = _most_descriptors()
        for _ in range(_A_TURN):
            try:
                client, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as err:  # no descriptor or no memory left: clients wait
                self._tell(f"clients have to wait: {err.strerror}")
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(_REST_SECONDS, self._watch, listening)
                return
            if client.fileno() >= most:
                self._tell(f"clients are refused: the process has {most} files open (ulimit -n)")
                client.close()
                continue
            self._begin(client, address)

    def _begin(self, client: socket.socket, address: Any) -> None:
        protocol = self._make_protocol(address)
        if protocol is None:
            client.close()
            return
        client.setblocking(False)
        begin = asyncio.get_running_loop().create_task(self._connect(client, protocol))
        self._begins.add(begin)
        begin.add_done_callback(self._begins.discard)

    async def _connect(self, client: socket.socket, protocol: asyncio.Protocol) -> None:
        timeout_s = None if self._tls is None else self._handshake_timeout_s
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, client, ssl=self._tls, ssl_handshake_timeout=timeout_s
            )
        except OSError as err:  # the client left, or does not speak TLS
            logger.debug("%s: a client could not connect: %s", self._name, err)
            client.close()
        except asyncio.CancelledError:
            client.close()
            raise
        finally:
            self._forget(protocol)

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning("%s: %s", self._name, what)


def _most_descriptors() -> int | float:
    """Return the first descriptor that is reserved for files."""
    import resource  # noqa: PLC0415 (Unix only)

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY:
        return float("inf")
    return most - max(most // _LEFT_OF, _LEAST_LEFT)
