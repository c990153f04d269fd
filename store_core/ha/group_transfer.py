"""Puts that wait until enough slaves have their record.

Source: RocketMQ ``GroupTransferService`` (release 5.3.3).
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NONE = -1


class _Waiter:
    """Who waits for an offset, in a lock that whoever brings the news releases."""

    __slots__ = ("is_done", "is_waiting", "offset")

    def __init__(self, offset: int) -> None:
        self.offset, self.is_done = offset, False
        self.is_waiting = threading.Lock()
        self.is_waiting.acquire()


class GroupTransferService:
    """Lets puts go on when enough slaves have acknowledged their records.

    Only connections that there are count, as in RocketMQ: an offset that a slave has acknowledged
    before it went away is none that somebody waits for later.

    Parameters
    ----------
    in_sync_replicas
        Stores that must have a record, the master included.
    timeout_ms
        How long a put waits (``slaveTimeout``).
    """

    def __init__(self, in_sync_replicas: int, timeout_ms: int) -> None:
        self._slaves, self._timeout_s = in_sync_replicas - 1, timeout_ms / 1000
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._acked = sys.maxsize if self._slaves < 1 else _NONE
        self._is_closed = False

    def wait_for(self, next_offset: int, since: float | None = None) -> bool:
        """Wait until enough slaves have the log up to an offset; False if not in time.

        ``since``: when it was appended (``time.monotonic()``), None: now; the time counts from
        there.
        """
        waiter = _Waiter(next_offset)
        with self._lock:
            if next_offset <= self._acked or self._is_closed:
                return not self._is_closed
            self._waiters.append(waiter)
        passed_s = 0.0 if since is None else time.monotonic() - since
        if not waiter.is_waiting.acquire(timeout=max(self._timeout_s - passed_s, 0)):
            with self._lock:
                self._waiters = [other for other in self._waiters if other is not waiter]
        return waiter.is_done

    def note_acks(self, acks: Iterable[int]) -> None:
        """Let those go on for whom it is enough; ``acks``: of all connections that there are."""
        if self._slaves < 1:
            return
        enough = sorted(acks, reverse=True)[: self._slaves]
        acked = enough[-1] if len(enough) == self._slaves else _NONE
        with self._lock:
            self._acked = acked
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if waiter.offset > acked:
                    self._waiters.append(waiter)
                    continue
                waiter.is_done = True
                waiter.is_waiting.release()

    def close(self) -> None:
        """Let all go on, with False; from now on nobody waits."""
        with self._lock:
            self._is_closed = True
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.is_waiting.release()
