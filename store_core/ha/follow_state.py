# SPDX-License-Identifier: Apache-2.0
"""State and progress of a slave that follows its master."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Callable

LEAST_SILENCE_S = 1.2
"""Under flow control a master of RocketMQ sends nothing for up to a second."""


class ConnectionState(Enum):
    """Activity of a slave."""

    NOT_CONNECTED = "not connected"
    COMPARING = "comparing"
    """The master repeats the end of this copy, which is compared."""
    FOLLOWING = "following"
    CUTTING = "cutting"
    """The end of this copy's log, which the master does not have, is cut off."""
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class FollowState:
    """Progress of a slave.

    The protocol does not report the end of the master's log. A slave only knows that the master has
    the data it sent and, if catching up takes longer, the part of its last segment that it reported
    on a second connection. So ``master_offset`` and ``lag_bytes`` are lower bounds, except for a
    slave that is caught up: its master had nothing more to send.

    Attributes
    ----------
    connection
        Current activity of the slave.
    max_offset, flushed_offset
        End of this copy's log, and the offset up to which it is on the disk.
    acked_offset
        Last offset reported to the master; -1 before the first report.
    master_offset
        The master has its log at least up to here; None while nothing is known.
    is_caught_up
        Whether the master had nothing more when it last sent.
    lag_bytes
        Bytes up to ``master_offset``; None while nothing is known.
    lag_ms
        Age of the message dispatched last; 0 when caught up, None before the first one.
    bytes_received
        Bytes of the log over all connections.
    reconnects
        Number of connections, and attempts to connect, after the first.
    bytes_in_second
        Bytes of the log in the last whole second.
    last_read_ms, last_write_ms
        Times of the last data from the master and the last report to it, ms since the epoch; 0
        before the first.
    error
        What broke the last connection, or why there is none; otherwise why received records are not
        dispatched. Empty if nothing is wrong.
    """

    connection: ConnectionState
    max_offset: int
    flushed_offset: int
    acked_offset: int
    master_offset: int | None
    is_caught_up: bool
    lag_bytes: int | None
    lag_ms: int | None
    bytes_received: int
    reconnects: int
    bytes_in_second: int
    last_read_ms: int
    last_write_ms: int
    error: str


# Source: RocketMQ ``FlowMonitor`` (release 5.3.3).
class FlowMonitor:
    """Counts the bytes of the log sent over a connection, second by second.

    RocketMQ counts the bytes of headers instead, so its limit lets thousands of times as much
    through; and it sends one empty frame after another when the limit is reached.

    Parameters
    ----------
    max_bytes_in_second
        No limit if None.
    """

    def __init__(
        self, max_bytes_in_second: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = max_bytes_in_second
        self._clock = clock
        self._begin = clock()
        self._sent = self._sent_before = 0

    @property
    def bytes_in_second(self) -> int:
        """Number of bytes sent in the last whole second."""
        seconds = self._clock() - self._begin
        if seconds < 1:
            return self._sent_before
        return self._sent if seconds < 2 else 0  # noqa: PLR2004 (the second after that one)

    @property
    def allowance_bytes(self) -> int:
        """Number of bytes that may still be sent in this second."""
        self._begin_second()
        return sys.maxsize if self._most is None else max(self._most - self._sent, 0)

    @property
    def next_second_s(self) -> float:
        """Seconds until there is an allowance again."""
        return max(self._begin + 1 - self._clock(), 0)

    def add(self, sent: int) -> None:
        """Count sent bytes."""
        self._begin_second()
        self._sent += sent

    def _begin_second(self) -> None:
        now = self._clock()
        if now - self._begin >= 1:
            self._sent_before, self._sent = self.bytes_in_second, 0
            self._begin += int(now - self._begin)


@dataclass
class FollowProgress:
    """Counts over all connections of a slave; see `FollowState`.

    Attributes
    ----------
    flow
        Counts the bytes received in each second.
    """

    connection: ConnectionState = ConnectionState.NOT_CONNECTED
    max_offset: int = 0
    flushed_offset: int = 0
    acked_offset: int = -1
    master_offset: int | None = None
    is_caught_up: bool = False
    bytes_received: int = 0
    reconnects: int = 0
    last_read_ms: int = 0
    last_write_ms: int = 0
    error: str = ""
    flow: FlowMonitor = field(default_factory=lambda: FlowMonitor(None))
    changed: threading.Condition = field(default_factory=threading.Condition)

    def grown(self, max_offset: int) -> None:
        """Set the new end of the log, and wake waiting threads."""
        self.max_offset = max_offset
        with self.changed:
            self.changed.notify_all()


@dataclass(frozen=True)
class FollowSettings:
    """Settings for following a master; times in seconds."""

    address: str
    ack: str
    heartbeat_s: float
    housekeeping_s: float

    @property
    def answer_s(self) -> float:
        """Time within which a master sends something."""
        return self.heartbeat_s + 2 * LEAST_SILENCE_S
