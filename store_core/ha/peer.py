# SPDX-License-Identifier: Apache-2.0
"""Sockets to a master: addresses, connecting, and broken connections."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from store_core.errors import StoreConfigError

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
CONNECT_S = 5.0
_MOST_PORT = 65_535


class ConnectionLostError(Exception):
    """A connection is unusable, but a new one may work; the text names the peer."""


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an IPv6 address is in brackets.

    Raises
    ------
    StoreConfigError
        The text is not such an address.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    is_port = port.isascii() and port.isdigit() and 0 < int(port) <= _MOST_PORT
    if not colon or not host or not is_port:
        raise StoreConfigError(
            f"the master's address must be HOST:PORT (haListenPort, 10912), not {address!r}"
        )
    return host, int(port)


async def connect(address: str, timeout_s: float) -> socket.socket:
    """Return a non-blocking connection.

    Raises
    ------
    ConnectionLostError
        The peer cannot be reached, or not in time.
    """
    try:
        return await within(timeout_s, _connect(*parse_address(address)))
    except asyncio.TimeoutError:
        raise ConnectionLostError(f"{address} did not answer within {timeout_s:g} s") from None
    except OSError as err:
        raise ConnectionLostError(f"cannot connect to {address}: {err.strerror or err}") from err


async def within(timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result; cancel it after the timeout.

    ``asyncio.wait_for`` of older Pythons can swallow a cancellation: then the caller never ends.

    Raises
    ------
    asyncio.TimeoutError
        The coroutine did not end in time.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if task.done():
            return task.result()
    except asyncio.CancelledError:
        _close_result(task)
        raise
    finally:
        task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    raise asyncio.TimeoutError


async def run_together(*works: Coroutine[Any, Any, object]) -> None:
    """Run coroutines until the first one ends or raises; then cancel the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _connect(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as err:
            failure = err
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _close_result(task: asyncio.Future[Any]) -> None:
    if task.done() and not task.cancelled() and task.exception() is None:
        result = task.result()
        if isinstance(result, socket.socket):
            result.close()
