# SPDX-License-Identifier: Apache-2.0
"""A limit on the bytes of all clients together; beyond it, the largest is disconnected."""

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
        What the bytes are, in log messages.
    """

    def __init__(self, what: str, reason: str, max_bytes: int) -> None:
        self._what = what
        self._reason = reason
        self._max_bytes = max_bytes
        self._bytes: dict[RemotingConnection, int] = {}  # connections with any
        self._total = 0

    def note(self, connection: RemotingConnection, count: int) -> None:
        """Set the bytes of a connection; disconnect the largest if the total is too large."""
        self._total += count - self._bytes.pop(connection, 0)
        if count:
            self._bytes[connection] = count
            if self._total > self._max_bytes:
                self._end_largest()

    def _end_largest(self) -> None:
        largest = max(self._bytes, key=self._bytes.__getitem__)
        count = self._bytes.pop(largest)
        logger.warning(
            "%s take %d bytes, more than %d; disconnecting %s, which has %d of them",
            self._what,
            self._total,
            self._max_bytes,
            largest.address,
            count,
        )
        self._total -= count
        largest.reason = self._reason
        largest.abort()
