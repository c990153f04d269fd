# SPDX-License-Identifier: Apache-2.0
"""Count puts and gets of a store, and report the numbers with RocketMQ's keys.

Source: RocketMQ ``StoreStatsService`` (release 5.3.3).
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import deque
from typing import Callable, NamedTuple

from store_core.services.service_thread import ServiceThread

logger = logging.getLogger(__name__)

_SAMPLE_INTERVAL_MS = 1000
_PRINT_INTERVAL_MS = 60_000
_SAMPLES = 600
_SPANS_S = (10, 60, 600)
_PUT_TIME_LIMITS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_PUT_TIME_TEXTS = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]"),
    *("[500ms~1s]", "[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)
# Steps of 1 ms at first, then of about a tenth.
_LATENCY_LIMITS_MS = (
    *range(21),
    *range(25, 101, 5),
    *range(110, 201, 10),
    *range(250, 501, 50),
    *range(600, 1001, 100),
    *range(2000, 10_001, 1000),
)


class _Sample(NamedTuple):
    now_ms: int
    puts: int
    found: int
    missed: int
    transferred: int

    @property
    def gets(self) -> int:
        return self.found + self.missed


class StoreStatsService(ServiceThread):
    """Counters, sampled every second; safe for any thread."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(_SAMPLE_INTERVAL_MS)
        self._clock = clock
        self._boot_ms = self._printed_ms = clock()
        self._lock = threading.Lock()
        self._puts = self._put_bytes = self._failed_puts = self._max_put_ms = 0
        self._found = self._missed = self._transferred = self._max_get_ms = 0
        self._instant_puts = 0  # since `_sort_instant_puts`
        self._put_times = [0] * (len(_PUT_TIME_LIMITS_MS) + 1)
        self._latencies = [0] * (len(_LATENCY_LIMITS_MS) + 1)
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES + 1)

    def record_put(self, messages: int, size_bytes: int, elapsed_ms: int) -> None:
        """Count the messages of one put, their bytes, and its duration."""
        with self._lock:
            self._puts += messages
            self._put_bytes += size_bytes
            if elapsed_ms <= 0:  # nearly always
                self._instant_puts += 1
                return
            self._max_put_ms = max(self._max_put_ms, elapsed_ms)
            self._put_times[bisect_left(_PUT_TIME_LIMITS_MS, elapsed_ms)] += 1
            self._latencies[bisect_left(_LATENCY_LIMITS_MS, elapsed_ms)] += 1

    def record_replicated(self, messages: int, size_bytes: int) -> None:
        """Count messages from the master, and their bytes; there is no put to time."""
        with self._lock:
            self._puts += messages
            self._put_bytes += size_bytes

    @property
    def puts(self) -> int:
        """Number of messages put."""
        return self._puts

    @property
    def transferred(self) -> int:
        """Number of messages returned by gets."""
        return self._transferred

    def record_put_failure(self) -> None:
        """Count a put that was refused or failed."""
        with self._lock:
            self._failed_puts += 1

    def record_get(self, messages: int, elapsed_ms: int) -> None:
        """Count a get, the messages it returned (0 = a miss), and its duration."""
        with self._lock:
            if messages:
                self._found += 1
            else:
                self._missed += 1
            self._transferred += messages
            self._max_get_ms = max(self._max_get_ms, elapsed_ms)

    def run_once(self) -> bool:
        """Take a sample; once a minute log the throughput and reset the latencies."""
        now = self._clock()
        with self._lock:
            self._samples.append(self._sample(now))
        if abs(now - self._printed_ms) >= _PRINT_INTERVAL_MS:
            self._print()
            self._printed_ms = now
        return True

    def runtime_info(self) -> dict[str, str]:
        """Return the numbers as text; rates are per second, over the last 10, 60 and 600 s.

        A rate is empty until there are samples for its whole time span, as in RocketMQ.
        """
        with self._lock:
            self._sort_instant_puts()
            return {
                "bootTimestamp": str(self._boot_ms),
                "runtime": _duration(max(self._clock() - self._boot_ms, 0) // 1000),
                "putMessageEntireTimeMax": str(self._max_put_ms),
                "putMessageTimesTotal": str(self._puts),
                "putMessageFailedTimes": str(self._failed_puts),
                "putMessageSizeTotal": str(self._put_bytes),
                "putMessageDistributeTime": self._distribution(),
                "putMessageAverageSize": str(self._put_bytes / max(self._puts, 1)),
                "dispatchMaxBuffer": "0",  # nothing sets it since there is one dispatch thread
                "getMessageEntireTimeMax": str(self._max_get_ms),
                "putTps": self._rates("puts"),
                "getFoundTps": self._rates("found"),
                "getMissTps": self._rates("missed"),
                "getTotalTps": self._rates("gets"),
                "getTransferredTps": self._rates("transferred"),
                "putLatency99": f"{self._latency(0.99):.2f}",
                "putLatency999": f"{self._latency(0.999):.2f}",
            }

    def _sort_instant_puts(self) -> None:
        """Add instant puts to the distributions, which `record_put` skips to save time."""
        self._put_times[0] += self._instant_puts
        self._latencies[0] += self._instant_puts
        self._instant_puts = 0

    def _sample(self, now: int) -> _Sample:
        return _Sample(now, self._puts, self._found, self._missed, self._transferred)

    def _rates(self, field: str) -> str:
        return " ".join(self._rate(field, seconds) for seconds in _SPANS_S)

    def _rate(self, field: str, seconds: int) -> str:
        if len(self._samples) <= seconds:
            return ""
        first, last = self._samples[-1 - seconds], self._samples[-1]
        passed = last.now_ms - first.now_ms
        return str((getattr(last, field) - getattr(first, field)) * 1000 / passed) if passed else ""

    def _distribution(self) -> str:
        pairs = zip(_PUT_TIME_TEXTS, self._put_times)
        return " ".join(f"{text}:{count}" for text, count in pairs)

    def _latency(self, share: float) -> float:
        """Return the time in ms within which this share of puts completed, to about a tenth."""
        wanted, seen = sum(self._latencies) * share, 0
        for limit, count in zip(_LATENCY_LIMITS_MS, self._latencies):
            seen += count
            if seen >= wanted:
                return float(limit)
        return float(self._max_put_ms)

    def _print(self) -> None:
        with self._lock:
            self._sort_instant_puts()
            puts, gets = self._rate("puts", _SPANS_S[1]), self._rate("gets", _SPANS_S[1])
            latency = self._latency(0.999)
            self._latencies = [0] * len(self._latencies)
        logger.info("puts/s %s, gets/s %s, 99.9 %% of puts within %.0f ms", puts, gets, latency)


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    return f"[ {days} days, {hours} hours, {rest // 60} minutes, {rest % 60} seconds ]"
