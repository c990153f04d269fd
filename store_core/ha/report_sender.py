"""What a slave reports to its master, never in part.

A master takes the last whole offset of what it reads, and counts bytes from the beginning of the
connection: so the rest of a report comes before anything else. And it begins to send at the last
offset that it finds in its first read: so another one must not follow before it has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store_core.ha.peer import ConnectionLostError
from store_core.layout.replication import REPORT

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


class ReportSender:
    """Sends reports on a socket that does not block; what does not fit waits for `send_rest`.

    Parameters
    ----------
    sock, peer
        The connection, and its name in error texts.
    clock
        Returns seconds that only grow.

    Attributes
    ----------
    offset
        Reported last; -1 before that.
    sent_at
        When the last report went out.
    has_rest
        The socket took no more.
    """

    def __init__(self, sock: socket.socket, peer: str, clock: Callable[[], float]) -> None:
        self._sock, self._peer, self._clock = sock, peer, clock
        self.offset = -1
        self.sent_at = clock()
        self._rest = b""
        self._wanted = False

    @property
    def has_rest(self) -> bool:
        """The socket did not take all."""
        return bool(self._rest) or self._wanted

    def send(self, offset: int) -> None:
        """Report an offset, or replace a report of which nothing could be sent.

        Raises
        ------
        ConnectionLostError
            The connection is broken.
        """
        self.offset, self._wanted = offset, True
        self.send_rest()

    def repeat(self) -> None:
        """Report the same again: a heartbeat."""
        self.send(self.offset)

    def send_rest(self) -> None:
        """Send what the socket did not take before."""
        if self._wanted and not self._rest:
            self._rest, self._wanted = REPORT.pack(max_offset=self.offset), False
        try:
            while self._rest:
                self._rest = self._rest[self._sock.send(self._rest) :]
                self.sent_at = self._clock()
                if self._wanted and not self._rest:
                    self._rest, self._wanted = REPORT.pack(max_offset=self.offset), False
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as err:
            raise ConnectionLostError(
                f"cannot report to {self._peer}: {err.strerror or err}"
            ) from err
