# SPDX-License-Identifier: Apache-2.0
"""One client of a server: its requests, and requests that the server sends it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from rmqnet.remoting.remoting_connection import RemotingConnection

if TYPE_CHECKING:
    from typing import Protocol

    from rmqnet.errors import RemotingFormatError
    from rmqnet.remoting.remoting_connection import ConnectionOwner, WaitingRequest

    class ServerOwner(ConnectionOwner, Protocol):
        """The server of a connection, which notifies it of events."""

        def note_held(self, connection: ServerConnection, held_bytes: int) -> None:
            """Count the bytes of an incomplete frame."""

        def note_garbage(self, connection: ServerConnection, err: RemotingFormatError) -> None:
            """Log bytes that are not a frame."""

        def note_unread(self, connection: ServerConnection, unread_bytes: int) -> None:
            """Count the bytes of unread answers."""


logger = logging.getLogger(__name__)

_FLUSH_SECONDS = 5.0
_PIECE_BYTES = 16 << 10
_REQUESTS_OF_A_TURN = 64
"""Requests of one client that are processed before it is the others' turn."""
_WRITE_BUFFER_BYTES = 256 << 10
"""Unread bytes of a client that are not counted; thousands of clients may leave that many."""


class ServerConnection(RemotingConnection):
    """One connection that a client made; all calls are made in its loop.

    The server stops reading requests from a client that does not read its answers, or that has
    too many requests in progress.
    """

    PEER = "client"

    def __init__(
        self,
        owner: ServerOwner,
        peer: Any,
        max_frame_bytes: int,
        max_idle_s: float,
        max_under_way: int,
        max_unread_bytes: int,
    ) -> None:
        address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        super().__init__(address, owner, max_frame_bytes, max_idle_s)
        self.host = peer[0].partition("%")[0]  # without the interface
        self._server = owner
        self._max_under_way = max_under_way
        self._max_unread_bytes = max_unread_bytes
        self._under_way = 0
        self._begun = 0
        self._is_paused = False
        self._rest: list[bytes] = []  # received, for a later turn
        self._is_taking_soon = False
        self._abort_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare the transport."""
        super().connection_made(transport)
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        """Hand requests to the server; many that arrive together take several turns of the loop."""
        if self._rest:
            self._rest.append(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        enough, at = self._begun + _REQUESTS_OF_A_TURN, 0
        while at < len(data) and self.is_open and self._begun < enough:
            super().data_received(data[at : at + _PIECE_BYTES])
            at += _PIECE_BYTES
        if not self.is_open:
            return
        self._server.note_held(self, self._decoder.held_bytes)
        if at < len(data):
            self._rest.insert(0, data[at:])
            self._take_rest_soon()
        self._pause_or_go_on()

    def _take_rest_soon(self) -> None:
        if not self._is_taking_soon:
            self._is_taking_soon = True
            self._loop.call_soon(self._take_rest)

    def _take_rest(self) -> None:
        self._is_taking_soon = False
        if self._rest and self.is_open and self._under_way < self._max_under_way:
            data = b"".join(self._rest)
            self._rest.clear()
            self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clear the counts of the client, and notify the server."""
        self._server.note_held(self, 0)
        self._server.note_unread(self, 0)
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        super().connection_lost(exc)

    def close(self, reason: str) -> None:
        """Close it when the client has read all that was written, or after `_FLUSH_SECONDS`."""
        super().close(reason)
        if self._transport is not None and self._abort_timer is None:
            self._abort_timer = self._loop.call_later(_FLUSH_SECONDS, self.abort)

    def pause_writing(self) -> None:
        """Stop reading requests, as the client does not read its answers."""
        super().pause_writing()
        self._pause_or_go_on()

    def resume_writing(self) -> None:
        """Read requests again."""
        super().resume_writing()
        self._server.note_unread(self, 0)
        self._pause_or_go_on()

    def note_begun(self) -> None:
        """Count a request in progress."""
        self._under_way += 1
        self._begun += 1
        if self._under_way >= self._max_under_way:
            self._pause_or_go_on()

    def note_done(self) -> None:
        """Count a request as done: its answer is written, or it has none."""
        self._under_way -= 1
        if self._rest:
            self._take_rest_soon()
        elif self._is_paused:
            self._pause_or_go_on()

    def flush(self) -> None:
        """Send the joined frames; disconnect a client that leaves too many bytes unread."""
        super().flush()
        transport = self._transport
        if not self.is_writable and transport is not None and self.is_open:
            unread = transport.get_write_buffer_size()
            self._server.note_unread(self, unread)
            if unread > self._max_unread_bytes:
                logger.warning(
                    "%s does not read its answers: %d bytes are waiting; disconnecting it",
                    self.address,
                    unread,
                )
                self.reason = "it does not read its answers"
                self.abort()

    def _pause_or_go_on(self) -> None:
        is_full = self._under_way >= self._max_under_way
        is_paused = is_full or not self.is_writable or bool(self._rest)
        if self._transport is None or not self.is_open or is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _tell(self, err: RemotingFormatError) -> None:
        self._server.note_garbage(self, err)

    def _was_silent_since(self, request: WaitingRequest) -> bool:
        return False  # a client may be slow: it has no other server
