# SPDX-License-Identifier: Apache-2.0
"""Messages stored and pulled in the last minute, hour and day, by topic and group.

Source: RocketMQ ``BrokerStatsManager``, ``StatsItem`` (release 5.3.3).
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import date
from typing import TYPE_CHECKING, Callable, NamedTuple

if TYPE_CHECKING:
    from rmqnet.broker.state.traffic import Traffic

    Values = dict[tuple[str, str], "Value"]

SAMPLE_MS = 10_000
_KINDS = {
    "statsMinute": (SAMPLE_MS, 7),
    "statsHour": (600_000, 7),
    "statsDay": (3_600_000, 25),
}
"""Interval of the samples of each window, ms, and their maximum number."""


class Value(NamedTuple):
    """Count since the start, and the number of calls."""

    total: int = 0
    times: int = 0


class _Sample(NamedTuple):
    time_ms: int
    values: Values


class StatsItems:
    """Samples the counters of a broker.

    Parameters
    ----------
    clock
        Returns ms since the epoch.
    """

    def __init__(self, traffic: Traffic, cluster: str, clock: Callable[[], int]) -> None:
        self._traffic, self._cluster, self._clock = traffic, cluster, clock
        self._lock = threading.Lock()
        first = _Sample(clock(), {})
        self._windows = {name: deque([first], kept) for name, (_, kept) in _KINDS.items()}

    def run_once(self) -> bool:
        """Take a sample for each window that is due; return whether any was."""
        now = self._clock()
        with self._lock:
            due = [
                window
                for name, window in self._windows.items()
                if now - window[-1].time_ms >= _KINDS[name][0]
            ]
            if due:
                sample = _Sample(now, self._values())
                for window in due:
                    window.append(sample)
        return bool(due)

    def data(self, name: str, key: str) -> dict[str, dict[str, float]] | None:
        """Return sum, rate and mean of each window, with RocketMQ's keys; None if never counted."""
        value = self._values().get((name, key))
        if value is None:
            return None
        now = self._clock()
        with self._lock:
            oldest = {window: samples[0] for window, samples in self._windows.items()}
        return {
            window: _data(value, sample.values.get((name, key), Value()), now - sample.time_ms)
            for window, sample in oldest.items()
        }

    def _values(self) -> Values:
        found: Values = {}

        def add(name: str, key: str, total: int, times: int) -> None:
            before = found.get((name, key), Value())
            found[name, key] = Value(before.total + total, before.times + times)

        for incoming, count in self._traffic.incoming.items():
            calls = sum(count.sizes)
            add("TOPIC_PUT_NUMS", incoming.topic, count.messages, calls)
            add("TOPIC_PUT_SIZE", incoming.topic, count.size_bytes, calls)
            add("BROKER_PUT_NUMS", self._cluster, count.messages, calls)
        for outgoing, count in self._traffic.outgoing.items():
            key, calls = f"{outgoing.topic}@{outgoing.group}", sum(count.sizes)
            add("GROUP_GET_NUMS", key, count.messages, calls)
            add("GROUP_GET_SIZE", key, count.size_bytes, calls)
            add("BROKER_GET_NUMS", self._cluster, count.messages, calls)
        for back, calls in self._traffic.sent_back.items():
            add("SNDBCK_PUT_NUMS", f"{back.topic}@{back.group}", calls, calls)
        return found


def _data(last: Value, first: Value, elapsed_ms: int) -> dict[str, float]:
    total, times = last.total - first.total, last.times - first.times
    return {
        "sum": total,
        "tps": total * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0,
        "avgpt": total / times if times else 0.0,
    }


# Source: RocketMQ ``BrokerStats`` (release 5.3.3), which counts no messages of system topics.
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
        """Start a new day if the date has changed; return whether it has. Called often."""
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
        """Return the date in this machine's time zone, as in RocketMQ."""
        return date.fromtimestamp(self._clock() / 1000)
