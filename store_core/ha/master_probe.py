# SPDX-License-Identifier: Apache-2.0
"""Ask a master, on a separate connection, for its data at an offset."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from store_core.errors import HAError
from store_core.ha.end_comparison import DivergedError, segment_size
from store_core.ha.peer import CONNECT_S, ConnectionLostError, connect, within
from store_core.layout import MAX_BODY_BYTES, REPORT, TRANSFER_HEADER

if TYPE_CHECKING:
    import socket

    from store_core.ha.end_comparison import EndComparison
    from store_core.message_store import MessageStore

_BODY_AFTER_HEARTBEAT_S = 1.0
_READ_BYTES = 1 << 18


class ProbeResult(NamedTuple):
    """The first frame with a body; without one, the first frame: a heartbeat.

    Attributes
    ----------
    size
        Bytes of the body, which the master has at least; 0 if only heartbeats came.
    """

    offset: int
    size: int

    @property
    def end(self) -> int:
        """Offset up to which the master has its log at least, if it has any from `offset` on."""
        return self.offset + self.size


async def probe(
    address: str, request: int, answer_s: float, *, upto: int | None = None
) -> ProbeResult:
    """Ask a master for its data from an offset on; 0 requests the start of its last segment.

    A master that has data answers immediately, otherwise with its heartbeat.

    Parameters
    ----------
    upto
        Read on until the master has sent the byte at this offset, or has no more: then the size
        is that of all received data, at most a segment. If None, one frame is enough.

    Raises
    ------
    ConnectionLostError
        The master cannot be reached, or does not answer in time.
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
        """Return the next frame with a body, or a heartbeat that no body follows soon."""
        try:
            first = await within(self._answer_s, self._next())
        except asyncio.TimeoutError:
            raise ConnectionLostError(
                f"{self._address} sent neither data nor heartbeats within {self._answer_s:g} s"
            ) from None
        if first.size:
            return first
        try:  # a due heartbeat comes before data
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
                f"{self._address} does not send frames of a commit log: offset {found.offset}, "
                f"{found.size} bytes"
            )
        self._body_left = found.size
        return found

    async def _receive(self, most: int) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self._sock, most)
        if not data:
            raise ConnectionLostError(f"{self._address} closed the connection")
        return data


def require_common_end(
    store: MessageStore,
    address: str,
    comparison: EndComparison,
    last: ProbeResult,
    *,
    has_answered: bool,
) -> None:
    """Raise unless the master has more data than was compared with this copy.

    Parameters
    ----------
    last
        The start of the master's last segment, and the least size of its data there.

    Raises
    ------
    DivergedError
        The master's log ends before this copy does, or begins later.
    HAError
        The master's segments have another size.
    """
    at, end, common = comparison.at, comparison.end, (comparison.start, comparison.at)
    _require_size(store, address, last)
    if last.offset > at and has_answered:
        raise _gone(address, at, end, last, common)
    if last.end > at:
        return
    known = f"it ends at {at}" if at > comparison.start else f"it has nothing at {at}"
    raise DivergedError(
        f"this copy is ahead of {address}, or it is a copy of another master: it ends at {end}, "
        f"and the master has less: {known}. Start with an empty directory, copy the master's "
        "files, or cut this copy where the master ends (cut, --cut; the bytes cut off are kept)",
        common,
        may_cut=True,
    )


def require_first(
    store: MessageStore, address: str, first: int, last: ProbeResult, *, has_answered: bool
) -> None:
    """Raise unless the master may still send the beginning of an empty copy.

    Parameters
    ----------
    first
        The requested offset; 1 means 0.

    Raises
    ------
    DivergedError
        The master's log begins later.
    HAError
        The master's log ends before that segment, or its segments have another size.
    """
    _require_size(store, address, last)
    segment = first - first % segment_size(store)
    if last.offset > segment and has_answered:
        raise _gone(address, segment, segment, last, (segment, segment))
    if last.offset < segment:
        raise HAError(
            f"{address} has nothing at offset {segment}: its last segment begins at {last.offset}"
        )


def _gone(
    address: str, at: int, end: int, last: ProbeResult, common: tuple[int, int]
) -> DivergedError:
    return DivergedError(
        f"{address} no longer has offset {at}: its log begins later (its last segment begins at "
        f"{last.offset}), and this copy ends at {end}. Start with an empty directory, or copy the "
        "master's files",
        common,
        may_cut=False,
    )


def _require_size(store: MessageStore, address: str, last: ProbeResult) -> None:
    size = segment_size(store)
    if last.offset % size:
        raise HAError(
            f"the last segment of {address} begins at {last.offset}, but mappedFileSizeCommitLog "
            f"is {size} here: use the master's value and an empty directory"
        )
