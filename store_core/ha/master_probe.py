"""Asks a master, on a connection of its own, what it has at an offset."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from store_core.ha.peer import CONNECT_S, ConnectionLostError, connect, within
from store_core.layout.replication import MAX_BODY_BYTES, REPORT, TRANSFER_HEADER

if TYPE_CHECKING:
    import socket

_BODY_AFTER_HEARTBEAT_S = 1.0


class ProbeResult(NamedTuple):
    """The first frame with a body, else the first one: a heartbeat.

    Attributes
    ----------
    offset
        Where the master began to send.
    size
        Bytes of its body: it has at least those. 0: nothing but heartbeats came.
    """

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The master has its log at least up to here, if it has anything from `offset` on."""
        return self.offset + self.size


async def probe(address: str, request: int, answer_s: float) -> ProbeResult:
    """Ask what a master has from an offset on; 0 asks for the beginning of its last segment.

    It answers at once with what it has, else with its heartbeat.

    Raises
    ------
    ConnectionLostError
        There is no answer in time.
    """
    sock = await connect(address, CONNECT_S)
    with sock:
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(sock, REPORT.pack(max_offset=request))
            first = await within(answer_s, _next_frame(sock, address))
        except asyncio.TimeoutError:
            raise ConnectionLostError(
                f"{address} sends neither data nor heartbeats within {answer_s:g} s"
            ) from None
        except OSError as err:
            raise ConnectionLostError(f"{address}: {err.strerror or err}") from err
        if first.size:
            return first
        try:  # a heartbeat that was due comes before data
            return await within(_BODY_AFTER_HEARTBEAT_S, _first_body(sock, address))
        except (asyncio.TimeoutError, ConnectionLostError, OSError):
            return first


async def _first_body(sock: socket.socket, address: str) -> ProbeResult:
    while True:
        found = await _next_frame(sock, address)
        if found.size:
            return found


async def _next_frame(sock: socket.socket, address: str) -> ProbeResult:
    header = b""
    while len(header) < TRANSFER_HEADER.size:
        loop = asyncio.get_running_loop()
        data = await loop.sock_recv(sock, TRANSFER_HEADER.size - len(header))
        if not data:
            raise ConnectionLostError(f"{address} closed the connection")
        header += data
    found = ProbeResult(*TRANSFER_HEADER.struct.unpack(header))
    if not 0 <= found.size <= MAX_BODY_BYTES or found.offset < 0:
        raise ConnectionLostError(
            f"{address} sends no frames of a commit log: offset {found.offset}, {found.size} bytes"
        )
    return found
