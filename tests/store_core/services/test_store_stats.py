# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import threading

import pytest

from store_core.services.store_stats import StoreStatsService
from tests.store_core.services.growing_log import Clock

KEYS = [
    "bootTimestamp",
    "runtime",
    "putMessageEntireTimeMax",
    "putMessageTimesTotal",
    "putMessageFailedTimes",
    "putMessageSizeTotal",
    "putMessageDistributeTime",
    "putMessageAverageSize",
    "dispatchMaxBuffer",
    "getMessageEntireTimeMax",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
    "getTransferredTps",
    "putLatency99",
    "putLatency999",
]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stats(clock):
    return StoreStatsService(clock)


def test_keys_of_a_new_store(stats):
    info = stats.runtime_info()
    assert list(info) == KEYS
    assert all(isinstance(value, str) for value in info.values())
    assert info["putMessageAverageSize"] == "0.0"
    assert info["putTps"] == "  "


def test_counts(stats, clock):
    stats.record_put(1, 100, 3)
    stats.record_put(9, 400, 5001)
    stats.record_put_failure()
    stats.record_get(32, 7)
    stats.record_get(0, 1)
    clock.now += ((26 * 60 + 3) * 60 + 4) * 1000
    info = stats.runtime_info()
    assert info["bootTimestamp"] == "1000000"
    assert info["runtime"] == "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    assert info["putMessageEntireTimeMax"] == "5001"
    assert info["putMessageTimesTotal"] == "10"
    assert info["putMessageFailedTimes"] == "1"
    assert info["putMessageSizeTotal"] == "500"
    assert info["putMessageAverageSize"] == "50.0"
    assert info["getMessageEntireTimeMax"] == "7"
    assert info["dispatchMaxBuffer"] == "0"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "[<=0ms]"),
        (1, "[0~10ms]"),
        (10, "[0~10ms]"),
        (11, "[10~50ms]"),
        (1000, "[500ms~1s]"),
        (4001, "[4~5s]"),
        (10_000, "[5~10s]"),
        (10_001, "[10s~]"),
    ],
)
def test_times_of_puts_are_sorted_into_ranges(stats, milliseconds, text):
    stats.record_put(1, 1, milliseconds)
    ranges = stats.runtime_info()["putMessageDistributeTime"].split()
    assert len(ranges) == 13
    assert [part for part in ranges if not part.endswith(":0")] == [f"{text}:1"]


def test_rates_over_three_spans(stats, clock):
    for second in range(601):
        stats.run_once()
        clock.now += 1000
        stats.record_put(second, 1, 1)
        stats.record_get(3, 1)
        stats.record_get(0, 1)
    info = stats.runtime_info()
    assert info["putTps"] == f"{(590 + 599) / 2} {(540 + 599) / 2} {599 / 2}"
    assert info["getFoundTps"] == info["getMissTps"] == "1.0 1.0 1.0"
    assert info["getTotalTps"] == "2.0 2.0 2.0"
    assert info["getTransferredTps"] == "3.0 3.0 3.0"


def test_a_rate_is_empty_until_its_samples_reach_back(stats, clock):
    for _ in range(11):
        stats.run_once()
        clock.now += 2000
        stats.record_put(1, 1, 1)
    assert stats.runtime_info()["putTps"] == "0.5  "


def test_a_clock_that_stands_still_gives_no_rate(stats):
    for _ in range(11):
        stats.run_once()
    assert stats.runtime_info()["putTps"] == "  "


def test_latencies_begin_anew_each_minute(stats, clock, caplog):
    caplog.set_level(logging.INFO)
    for milliseconds in [1] * 98 + [20, 30_000]:
        stats.record_put(1, 1, milliseconds)
    info = stats.runtime_info()
    assert (info["putLatency99"], info["putLatency999"]) == ("20.00", "30000.00")
    stats.run_once()
    assert not caplog.records
    clock.now += 60_000
    stats.run_once()
    assert "99.9 % of puts within 30000 ms" in caplog.text
    assert stats.runtime_info()["putLatency999"] == "0.00"


def test_threads_count_together(stats):
    def count():
        for _ in range(500):
            stats.record_put(2, 3, 0)
            stats.record_get(1, 0)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    info = stats.runtime_info()
    assert (info["putMessageTimesTotal"], info["putMessageSizeTotal"]) == ("4000", "6000")
