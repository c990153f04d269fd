from __future__ import annotations

import sys

import pytest

from store_core.ha.follow_state import FlowMonitor


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_without_a_limit_all_is_allowed_and_counted(clock):
    flow = FlowMonitor(None, clock)
    flow.add(10**12)
    assert flow.allowance_bytes == sys.maxsize
    clock.now += 1
    assert flow.bytes_in_second == 10**12


def test_what_is_allowed_in_a_second_is_given_once(clock):
    flow = FlowMonitor(100, clock)
    assert flow.allowance_bytes == 100
    flow.add(70)
    clock.now += 0.25
    assert flow.allowance_bytes == 30
    flow.add(42)
    assert flow.allowance_bytes == 0
    assert flow.next_second_s == pytest.approx(0.75)
    clock.now += 0.75
    assert flow.next_second_s == 0
    assert flow.allowance_bytes == 100


def test_seconds_follow_each_other_from_the_first_on(clock):
    flow = FlowMonitor(100, clock)
    clock.now += 3.5
    flow.add(100)
    assert flow.allowance_bytes == 0
    assert flow.next_second_s == pytest.approx(0.5)


def test_bytes_of_the_last_whole_second(clock):
    flow = FlowMonitor(None, clock)
    assert flow.bytes_in_second == 0
    flow.add(5)
    assert flow.bytes_in_second == 0
    clock.now += 1
    assert flow.bytes_in_second == 5
    flow.add(7)
    assert flow.bytes_in_second == 5
    clock.now += 1
    assert flow.bytes_in_second == 7
    clock.now += 1
    assert flow.bytes_in_second == 0
    flow.add(1)
    assert flow.bytes_in_second == 0
