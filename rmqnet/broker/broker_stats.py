"""Messages of yesterday and today.

Source: RocketMQ ``BrokerStats`` (release 5.3.3), which counts no messages of system topics.
"""

from __future__ import annotations

import threading
from datetime import date
from typing import Callable, NamedTuple


class MessageTotals(NamedTuple):
    """Messages since the store was opened."""

    put: int = 0
    got: int = 0


class BrokerStats:
    """Remembers the totals of the last two midnights.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    """

    def __init__(self, totals: Callable[[], MessageTotals], clock: Callable[[], int]) -> None:
        self._totals = totals
        self._clock = clock
        self._lock = threading.Lock()
        self._yesterday = self._today = MessageTotals()
        self._day = self._local_day()

    def run_once(self) -> bool:
        """Begin a day if there is a new one; return whether there is. To be called often."""
        day = self._local_day()
        if day == self._day:
            return False
        with self._lock:
            self._day = day
            self._yesterday, self._today = self._today, self._totals()
        return True

    def runtime_info(self) -> dict[str, str]:
        """Return the totals with RocketMQ's keys."""
        with self._lock:
            yesterday, today = self._yesterday, self._today
        now = self._totals()
        return {
            "msgGetTotalTodayMorning": str(today.got),
            "msgGetTotalTodayNow": str(now.got),
            "msgGetTotalYesterdayMorning": str(yesterday.got),
            "msgPutTotalTodayMorning": str(today.put),
            "msgPutTotalTodayNow": str(now.put),
            "msgPutTotalYesterdayMorning": str(yesterday.put),
        }

    def _local_day(self) -> date:
        """Return the day of this machine: its midnight counts, as in RocketMQ."""
        return date.fromtimestamp(self._clock() / 1000)
