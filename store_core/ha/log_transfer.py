"""The stream of frames that a slave is sent, written to a socket that need not take all of it.

Source: RocketMQ ``DefaultHAConnection.WriteSocketService`` (release 5.3.3).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from store_core.errors import HAError
from store_core.layout.replication import TRANSFER_HEADER

if TYPE_CHECKING:
    import socket

    from store_core.message_store import MessageStore

_MOST_BYTES = 1 << 20
_MOST_FRAMES = 500  # two buffers each; the system takes 1024 in one call


class Progress(Enum):
    """How far a call of `LogTransfer.send` came."""

    SENT = "all that was offered; there may be more"
    BLOCKED = "the socket takes no more now"
    AT_END = "there is nothing to send"


class LogTransfer:
    """What of the log comes next, and what is left of the frame that was begun.

    No byte of the log is kept: what the socket does not take is looked up again. So a slave that
    does not read costs neither memory nor a file that stays open.

    Parameters
    ----------
    store
        The master.
    sock
        Non-blocking.
    offset
        Where to begin.
    is_below_log
        There are no bytes at this offset any more, which is no error: the slave gets heartbeats.

    Attributes
    ----------
    offset
        The next byte of the log to be sent.
    sent_bytes
        Of frames, headers included.
    is_below_log
        As given.
    """

    def __init__(
        self, store: MessageStore, sock: socket.socket, offset: int, *, is_below_log: bool = False
    ) -> None:
        self.offset, self.sent_bytes = offset, 0
        self.is_below_log = is_below_log
        self._store, self._sock = store, sock
        self._batch_bytes = store.config.ha_transfer_batch_size
        self._most_bytes = min(_MOST_BYTES, self._batch_bytes * _MOST_FRAMES)
        self._header, self._body_left = b"", 0

    @property
    def is_in_frame(self) -> bool:
        """A frame was begun, and its rest comes next."""
        return bool(self._header) or self._body_left > 0

    @property
    def is_behind(self) -> bool:
        """There are bytes in the log that come next."""
        return not self.is_below_log and self.offset < self._store.replicable_offset

    def begin_heartbeat(self) -> None:
        """Let an empty frame come next; no frame is begun."""
        self._header = TRANSFER_HEADER.pack(offset=self.offset, body_size=0)

    def send(self, allowance_bytes: int) -> Progress:
        """Send the rest of the frame, and more frames within the allowance, of one segment.

        Between frames the allowance is not 0.

        Raises
        ------
        HAError
            The bytes that come next were deleted.
        OSError
            The connection is broken.
        StoreClosedError
            The store was shut down.
        """
        if self._header and not self._body_left:
            return self._send_heartbeat()
        progress = self._send_data(allowance_bytes)
        if progress is Progress.AT_END and self.is_behind:
            # It may have been appended since.
            progress = self._send_data(allowance_bytes)
            if progress is Progress.AT_END:
                raise self._gone()
        return progress

    def _send_heartbeat(self) -> Progress:
        sent = _send(self._sock, [self._header])
        self.sent_bytes += sent
        self._header = self._header[sent:]
        return Progress.BLOCKED if self._header else Progress.SENT

    def _send_data(self, allowance_bytes: int) -> Progress:
        there_is = self._store.replicable_offset - self.offset
        most = max(min(self._most_bytes, allowance_bytes, there_is), self._body_left)
        with self._store.commit_log_data(self.offset, most) as data:
            if data is None or len(data) < self._body_left:
                return Progress.AT_END
            parts = self._frames(memoryview(data))
            offered = sum(map(len, parts))
            sent = _send(self._sock, parts)
            self._advance(parts, sent)
            self.sent_bytes += sent
        return Progress.SENT if sent == offered else Progress.BLOCKED

    def _frames(self, data: memoryview) -> list[Any]:
        """Return headers and bodies in turn, beginning with what is left of the first frame."""
        parts: list[Any] = [self._header, data[: self._body_left]] if self.is_in_frame else []
        for at in range(self._body_left, len(data), self._batch_bytes):
            body = data[at : at + self._batch_bytes]
            parts += (TRANSFER_HEADER.struct.pack(self.offset + at, len(body)), body)
        return parts

    def _advance(self, parts: list[Any], sent: int) -> None:
        """Note what was sent of headers and bodies."""
        self._header, self._body_left = b"", 0
        for header, body in zip(parts[::2], parts[1::2]):
            header_sent = min(sent, len(header))
            body_sent = min(sent - header_sent, len(body))
            sent -= header_sent + body_sent
            self.offset += body_sent
            if header_sent < len(header) or body_sent < len(body):
                if header_sent or len(header) < TRANSFER_HEADER.size:  # else it was not begun
                    self._header, self._body_left = header[header_sent:], len(body) - body_sent
                return

    def _gone(self) -> HAError:
        return HAError(
            f"the next byte to send is that at offset {self.offset}, and the log begins at "
            f"{self._store.min_phy_offset} now: its segment was deleted before this slave had it; "
            "give the slave a copy of the files, or let it begin anew"
        )


def _send(sock: socket.socket, parts: list[Any]) -> int:
    try:
        return sock.sendmsg(parts)
    except (BlockingIOError, InterruptedError):
        return 0
