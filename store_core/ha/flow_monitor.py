"""How much one slave was sent in the current second, and may be sent still.

Source: RocketMQ ``FlowMonitor`` (release 5.3.3).
"""

from __future__ import annotations

import sys
import time
from typing import Callable


class FlowMonitor:
    """Counts the bytes of the log that a connection was sent, second by second.

    RocketMQ counts those of the headers instead, so that its limit lets thousands of times as much
    through; and it sends one empty frame after the other when the limit is reached.

    Parameters
    ----------
    max_bytes_in_second
        None: no limit.
    clock
        Seconds; it never goes back.
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
        """What was sent in the last whole second."""
        seconds = self._clock() - self._begin
        if seconds < 1:
            return self._sent_before
        return self._sent if seconds < 2 else 0  # noqa: PLR2004 (the second after that one)

    @property
    def allowance_bytes(self) -> int:
        """What may be sent in this second still."""
        self._begin_second()
        return sys.maxsize if self._most is None else max(self._most - self._sent, 0)

    @property
    def next_second_s(self) -> float:
        """How long until there is an allowance again."""
        return max(self._begin + 1 - self._clock(), 0)

    def add(self, sent: int) -> None:
        """Count bytes that were sent."""
        self._begin_second()
        self._sent += sent

    def _begin_second(self) -> None:
        now = self._clock()
        if now - self._begin >= 1:
            self._sent_before, self._sent = self.bytes_in_second, 0
            self._begin += int(now - self._begin)
