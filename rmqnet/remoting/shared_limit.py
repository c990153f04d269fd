"""Memory that all clients of a server share: who takes most of it goes, where it is not enough."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqnet.remoting.remoting_connection import RemotingConnection

logger = logging.getLogger(__name__)


class SharedLimit:
    """Counts the bytes of each connection; all calls are made in the loop.

    Parameters
    ----------
    what
        The bytes are of, for people.
    """

    def __init__(self, what: str, reason: str, max_bytes: int) -> None:
        self._what = what
        self._reason = reason
        self._max_bytes = max_bytes
        self._bytes: dict[RemotingConnection, int] = {}  # those that have any
        self._total = 0

    def note(self, connection: RemotingConnection, count: int) -> None:
        """Note how many bytes a connection takes now; end that with most, if all are too many."""
        self._total += count - self._bytes.pop(connection, 0)
        if count:
            self._bytes[connection] = count
            if self._total > self._max_bytes:
                self._end_largest()

    def _end_largest(self) -> None:
        largest = max(self._bytes, key=self._bytes.__getitem__)
        count = self._bytes.pop(largest)
        logger.warning(
            "%s take %d bytes, more than %d; %s is disconnected, which has %d of them",
            self._what,
            self._total,
            self._max_bytes,
            largest.address,
            count,
        )
        self._total -= count
        largest.reason = self._reason
        largest.abort()
