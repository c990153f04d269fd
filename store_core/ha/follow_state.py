"""What is known of a slave that follows its master."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ConnectionState(Enum):
    """What a slave does with its connection."""

    NOT_CONNECTED = "not connected"
    COMPARING = "comparing"
    """What the master sends is what this copy has already: is it the same?"""
    FOLLOWING = "following"
    CUTTING = "cutting"
    """What the master does not have is cut off this copy's log."""
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class FollowState:
    """Where a slave is.

    The protocol does not tell where the master's log ends. Two things are known of it: that it
    has what it sent, and, where catching up takes longer, what a second connection was told of its
    last segment. So ``master_offset`` and ``lag_bytes`` are lower bounds, but for a slave that is
    caught up: its master had nothing more to send.

    Attributes
    ----------
    connection
        What is done now.
    max_offset, flushed_offset
        End of this copy's log, and up to where it is on the disk.
    acked_offset
        What the master was told last; -1 before that.
    master_offset
        The master has its log at least up to here; None while nothing is known.
    is_caught_up
        The master had nothing more when it sent last.
    lag_bytes
        Bytes up to ``master_offset``; None while nothing is known.
    lag_ms
        Age of the message that was dispatched last; 0 when caught up, None before there is one.
    bytes_received
        Over all connections.
    reconnects
        Connections, and tries to connect, after the first.
    bytes_in_second
        Of the log, in the last whole second.
    last_read_ms, last_write_ms
        When the master was last heard and told, ms since the epoch; 0 before.
    error
        What broke the last connection, or why there is none; else why queues and index do not get
        what comes. Empty if nothing is wrong.
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
