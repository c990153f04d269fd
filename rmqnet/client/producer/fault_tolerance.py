"""Brokers that answer slowly, or not at all, rest for a while.

Source: RocketMQ ``MQFaultStrategy``, ``LatencyFaultToleranceImpl`` (release 5.3.3), without the
detector that asks such brokers whether they are back.
"""

from __future__ import annotations

import time
from typing import Callable

LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_DURATION_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
ISOLATION_LATENCY_MS = 10_000
"""A failed send counts as one that took this long."""


def monotonic_ms() -> int:
    """Return milliseconds of a clock that only goes forward."""
    return time.monotonic_ns() // 1_000_000


def not_available_duration_ms(latency_ms: int) -> int:
    """Return how long a broker rests that took so long."""
    for bound, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_DURATION_MS)):
        if latency_ms >= bound:
            return duration
    return 0


class _FaultItem:
    __slots__ = ("available_from_ms", "reachable")

    def __init__(self) -> None:
        self.available_from_ms = 0
        self.reachable = True


class LatencyFaultTolerance:
    """What past sends say about each broker. Not thread-safe."""

    def __init__(self, clock_ms: Callable[[], int] = monotonic_ms) -> None:
        self._clock_ms = clock_ms
        self._items: dict[str, _FaultItem] = {}

    def update(
        self, broker_name: str, latency_ms: int, *, isolation: bool = False, reachable: bool = True
    ) -> None:
        """Note how a send went.

        Parameters
        ----------
        isolation
            It failed: the broker rests as if it had taken ten seconds.
        reachable
            False: not even the second choice, until a send succeeds there.
        """
        item = self._items.setdefault(broker_name, _FaultItem())
        duration = not_available_duration_ms(ISOLATION_LATENCY_MS if isolation else latency_ms)
        if duration:
            item.available_from_ms = max(item.available_from_ms, self._clock_ms() + duration)
        item.reachable = reachable

    def is_available(self, broker_name: str) -> bool:
        """Say whether it has rested long enough; brokers never seen have."""
        item = self._items.get(broker_name)
        return item is None or self._clock_ms() >= item.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Say whether the last send there was answered, or at least might be."""
        item = self._items.get(broker_name)
        return item is None or item.reachable
