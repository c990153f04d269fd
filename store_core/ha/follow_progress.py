"""What a slave has done so far: written by its loop, read by any thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from store_core.ha.flow_monitor import FlowMonitor
from store_core.ha.follow_state import ConnectionState


@dataclass
class FollowProgress:
    """Counts over all connections of a slave; see `FollowState`.

    Attributes
    ----------
    flow
        Counts what came in the current second.
    changed
        Notified when the log has grown, or the slave has ended.
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
        """Note the new end of the log."""
        self.max_offset = max_offset
        with self.changed:
            self.changed.notify_all()
