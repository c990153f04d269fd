from __future__ import annotations

import pytest

from rmqnet.client.producer.fault_tolerance import (
    LatencyFaultTolerance,
    monotonic_ms,
    not_available_duration_ms,
)

# What MQFaultStrategy.computeNotAvailableDuration of RocketMQ 5.3.3 returned.
DURATIONS = [
    (0, 0),
    (49, 0),
    (50, 0),
    (99, 0),
    (100, 0),
    (549, 0),
    (550, 2000),
    (1799, 2000),
    (1800, 5000),
    (2999, 5000),
    (3000, 6000),
    (4999, 6000),
    (5000, 10000),
    (9999, 10000),
    (10000, 10000),
    (14999, 10000),
    (15000, 30000),
    (600000, 30000),
]


class Clock:
    now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.mark.parametrize(("latency_ms", "duration_ms"), DURATIONS)
def test_how_long_a_broker_rests(latency_ms, duration_ms):
    assert not_available_duration_ms(latency_ms) == duration_ms
    clock = Clock()
    faults = LatencyFaultTolerance(clock)
    faults.update("a", latency_ms)
    assert faults.is_available("a") is (duration_ms == 0)
    if duration_ms:
        clock.now_ms += duration_ms - 1
        assert not faults.is_available("a")
        clock.now_ms += 1
    assert faults.is_available("a")
    assert faults.is_reachable("a")


def test_a_failed_send_counts_as_ten_seconds():
    clock = Clock()
    faults = LatencyFaultTolerance(clock)
    faults.update("a", 1, isolation=True, reachable=False)
    clock.now_ms += 9_999
    assert not faults.is_available("a")
    assert not faults.is_reachable("a")
    clock.now_ms += 1
    assert faults.is_available("a")
    assert not faults.is_reachable("a")


def test_a_quick_send_does_not_end_a_rest_but_reaches_the_broker():
    clock = Clock()
    faults = LatencyFaultTolerance(clock)
    faults.update("a", 1, isolation=True, reachable=False)
    faults.update("a", 1)
    assert not faults.is_available("a")
    assert faults.is_reachable("a")


def test_a_shorter_rest_does_not_cut_a_longer_one():
    clock = Clock()
    faults = LatencyFaultTolerance(clock)
    faults.update("a", 15_000)
    faults.update("a", 600)
    clock.now_ms += 29_999
    assert not faults.is_available("a")


def test_unknown_brokers_are_fine():
    faults = LatencyFaultTolerance(monotonic_ms)
    assert faults.is_available("z")
    assert faults.is_reachable("z")
