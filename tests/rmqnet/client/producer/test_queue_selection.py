# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import collections

import pytest

from rmqnet.client.message_queue import MessageQueue
from rmqnet.client.producer.queue_selection import (
    LatencyFaultTolerance,
    TopicPublishInfo,
    monotonic_ms,
    not_available_duration_ms,
    select_queue,
    select_queue_by_hash,
)

# Queue ids that SelectMessageQueueByHash of RocketMQ 5.3.3 chose, by number of queues.
SIZES = (1, 2, 3, 4, 7, 8, 16, 100, 1000003)
CHOSEN = [
    ("", [0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ("a", [0, 1, 1, 1, 6, 1, 1, 97, 97]),
    ("order-1", [0, 0, 2, 2, 6, 6, 14, 10, 107689]),
    ("order-42", [0, 1, 0, 1, 0, 5, 13, 97, 251495]),
    ("polygenelubricants", [0, 0, 2, 0, 2, 0, 0, 48, 477207]),  # Integer.MIN_VALUE
    ("user:\u00e4\u00f6", [0, 1, 0, 3, 4, 7, 15, 11, 164070]),
    ("\u4e2d\u6587", [0, 0, 2, 2, 0, 2, 10, 94, 646394]),
    ("\U0001f600", [0, 1, 1, 3, 2, 3, 3, 99, 772896]),
    ("x\U0001f600y", [0, 0, 2, 2, 0, 6, 14, 10, 534736]),
    ("\ud800", [0, 0, 0, 0, 3, 0, 0, 96, 55296]),
    ("\udc00abc", [0, 0, 1, 2, 1, 2, 2, 74, 920443]),
    ("GydZG_", [0, 0, 2, 0, 2, 0, 0, 48, 477207]),
    ("12345678901234567890", [0, 0, 0, 2, 3, 2, 10, 38, 330432]),
    ("Aa", [0, 0, 0, 0, 5, 0, 0, 12, 2112]),
    ("BB", [0, 0, 0, 0, 5, 0, 0, 12, 2112]),
]
A0, A1 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)
B0, B1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
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


class Queues:
    """Any number of queues, without creating them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        assert 0 <= index < self.size
        return index


@pytest.mark.parametrize(("key", "chosen"), CHOSEN)
def test_a_key_leads_to_the_queue_that_java_chooses(key, chosen):
    assert [select_queue_by_hash(Queues(size), key) for size in SIZES] == chosen


def test_queues_are_taken_in_turn_from_any_on():
    info = TopicPublishInfo([A0, A1, B0, B1], start=2)
    assert [info.next_queue() for _ in range(5)] == [B1, A0, A1, B0, B1]
    starts = {TopicPublishInfo([A0, A1, B0, B1]).next_queue() for _ in range(200)}
    assert starts == {A0, A1, B0, B1}


def test_every_queue_gets_its_share():
    info = TopicPublishInfo([A0, A1, B0])
    taken = collections.Counter(select_queue(info, None, None) for _ in range(300))
    assert set(taken.values()) == {100}


def test_after_a_failure_another_broker_is_asked():
    info = TopicPublishInfo([A0, A1, B0, B1])
    assert {select_queue(info, "a", None).broker_name for _ in range(20)} == {"b"}
    assert {select_queue(info, "b", None).broker_name for _ in range(20)} == {"a"}


def test_where_there_is_only_one_broker_it_is_asked_again():
    info = TopicPublishInfo([A0, A1], start=0)
    assert {select_queue(info, "a", None) for _ in range(4)} == {A0, A1}


def test_a_resting_broker_is_passed_over_until_it_has_rested():
    clock = Clock()
    faults = LatencyFaultTolerance(clock)
    info = TopicPublishInfo([A0, A1, B0, B1])
    faults.update("a", 700)
    assert {select_queue(info, None, faults).broker_name for _ in range(40)} == {"b"}
    clock.now_ms += 2000
    assert {select_queue(info, None, faults).broker_name for _ in range(40)} == {"a", "b"}


def test_where_all_rest_a_reachable_one_is_taken():
    faults = LatencyFaultTolerance(Clock())
    info = TopicPublishInfo([A0, A1, B0, B1])
    faults.update("a", 3, isolation=True, reachable=False)
    faults.update("b", 3, isolation=True)
    assert {select_queue(info, None, faults).broker_name for _ in range(40)} == {"b"}


def test_where_all_rest_and_none_is_reachable_any_is_taken():
    faults = LatencyFaultTolerance(Clock())
    info = TopicPublishInfo([A0, A1, B0, B1])
    for broker in "ab":
        faults.update(broker, 3, isolation=True, reachable=False)
    assert {select_queue(info, None, faults).broker_name for _ in range(200)} == {"a", "b"}


def test_the_broker_that_failed_is_not_taken_even_if_it_alone_does_not_rest():
    faults = LatencyFaultTolerance(Clock())
    info = TopicPublishInfo([A0, A1, B0, B1])
    faults.update("b", 16_000)
    assert {select_queue(info, "a", faults).broker_name for _ in range(40)} == {"b"}


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
