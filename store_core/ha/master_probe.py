"""Asks a master, on a connection of its own, what it has at an offset."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from store_core.ha.peer import CONNECT_S, ConnectionLostError, connect, within
from store_core.layout.replication import MAX_BODY_BYTES, REPORT, TRANSFER_HEADER

if TYPE_CHECKING:
    import socket

_BODY_AFTER_HEARTBEAT_S = 1.0
_READ_BYTES = 1 << 18


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


async def probe(
    address: str, request: int, answer_s: float, *, upto: int | None = None
) -> ProbeResult:
    """Ask what a master has from an offset on; 0 asks for the beginning of its last segment.

    It answers at once with what it has, else with its heartbeat.

    Parameters
    ----------
    address
        ``HOST:PORT``.
    request
        The offset.
    answer_s
        How long to wait for each answer.
    upto
        Read on until the master has sent the byte at this offset, or has no more: then the size
        is that of all that came, at most a segment. None: the first frame is enough.

    Raises
    ------
    ConnectionLostError
        There is no answer in time.
    """
    sock = await connect(address, CONNECT_S)
    with sock:
        frames = _Frames(sock, address, answer_s)
        try:
            await asyncio.get_running_loop().sock_sendall(sock, REPORT.pack(max_offset=request))
            found = await frames.answer()
            while upto is not None and found.size and found.offset <= upto >= found.end:
                more = await frames.answer()
                if not more.size:
                    break
                found = ProbeResult(found.offset, more.end - found.offset)
        except OSError as err:
            raise ConnectionLostError(f"{address}: {err.strerror or err}") from err
        return found


class _Frames:
    """The frames of a master, without their bodies."""

    def __init__(self, sock: socket.socket, address: str, answer_s: float) -> None:
        self._sock, self._address, self._answer_s = sock, address, answer_s
        self._body_left = 0

    async def answer(self) -> ProbeResult:
        """Return the next frame with a body; a heartbeat where none comes soon after it."""
        try:
            first = await within(self._answer_s, self._next())
        except asyncio.TimeoutError:
            raise ConnectionLostError(
                f"{self._address} sends neither data nor heartbeats within {self._answer_s:g} s"
            ) from None
        if first.size:
            return first
        try:  # a heartbeat that was due comes before data
            return await within(_BODY_AFTER_HEARTBEAT_S, self._next_with_body())
        except (asyncio.TimeoutError, ConnectionLostError, OSError):
            return first

    async def _next_with_body(self) -> ProbeResult:
        while True:
            found = await self._next()
            if found.size:
                return found

    async def _next(self) -> ProbeResult:
        while self._body_left:
            self._body_left -= len(await self._receive(min(self._body_left, _READ_BYTES)))
        header = b""
        while len(header) < TRANSFER_HEADER.size:
            header += await self._receive(TRANSFER_HEADER.size - len(header))
        found = ProbeResult(*TRANSFER_HEADER.struct.unpack(header))
        if not 0 <= found.size <= MAX_BODY_BYTES or found.offset < 0:
            raise ConnectionLostError(
                f"{self._address} sends no frames of a commit log: offset {found.offset}, "
                f"{found.size} bytes"
            )
        self._body_left = found.size
        return found

    async def _receive(self, most: int) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self._sock, most)
        if not data:
            raise ConnectionLostError(f"{self._address} closed the connection")
        return data
