# SPDX-License-Identifier: Apache-2.0
"""A broker's counts of its messages, and the sums for a minute, an hour and a day."""

from __future__ import annotations

import threading

import pytest

from rmqnet.broker.state.stats_items import StatsItems
from rmqnet.broker.state.traffic import SIZE_LIMITS, Incoming, Outgoing, Traffic, message_type


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_minute_forgets_what_an_hour_and_a_day_know(clock: Clock) -> None:
    traffic = Traffic()
    items = StatsItems(traffic, "c", clock)
    traffic.put("t", "normal", 3, 300)
    for _ in range(7):
        clock.now += 10_000
        assert items.run_once()
    assert not items.run_once()
    traffic.put("t", "normal", 1, 50)
    data = items.data("TOPIC_PUT_NUMS", "t")
    assert data is not None
    assert data["statsMinute"] == {"sum": 1, "tps": 1000 / 60_000, "avgpt": 1.0}
    assert data["statsHour"] == {"sum": 4, "tps": 4000 / 70_000, "avgpt": 2.0}
    assert data["statsDay"]["sum"] == 4


def test_each_kind_has_its_key(clock: Clock) -> None:
    traffic = Traffic()
    items = StatsItems(traffic, "c", clock)
    traffic.put("t", "normal", 2, 200)
    traffic.put("u", "normal", 1, 10)
    traffic.pulled("t", "g", 4, 40)
    traffic.sent_back_by("t", "g")
    expected = {
        ("TOPIC_PUT_NUMS", "t"): 2,
        ("TOPIC_PUT_SIZE", "t"): 200,
        ("BROKER_PUT_NUMS", "c"): 3,
        ("GROUP_GET_NUMS", "t@g"): 4,
        ("GROUP_GET_SIZE", "t@g"): 40,
        ("BROKER_GET_NUMS", "c"): 4,
        ("SNDBCK_PUT_NUMS", "t@g"): 1,
    }
    for (name, key), total in expected.items():
        data = items.data(name, key)
        assert data is not None
        assert data["statsMinute"]["sum"] == total
    assert items.data("TOPIC_PUT_NUMS", "other") is None
    assert items.data("GROUP_GET_NUMS", "t") is None


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"TAGS": "a"}, "normal"),
        ({"TRAN_MSG": "true", "DELAY": "3"}, "transaction"),
        ({"TRAN_MSG": "false"}, "normal"),
        ({"__SHARDINGKEY": "k", "DELAY": "3"}, "fifo"),
        *(({key: "1"}, "delay") for key in ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")),
        *(({key: "1"}, "delay") for key in ("TIMER_DELIVER_MS", "__STARTDELIVERTIME")),
    ],
)
def test_kinds_of_messages(properties, expected):
    assert message_type(properties) == expected


def test_what_threads_count_is_added_up():
    traffic, threads = Traffic(), 8

    def count(number):
        for _ in range(500):
            traffic.put("orders", "normal", 2, 300)
            traffic.pulled("orders", f"g{number % 2}", 1, 100)
            traffic.died("orders", "g0")
            traffic.ended(is_commit=number % 4 > 0)

    workers = [threading.Thread(target=count, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        traffic.totals()  # while others count
    (count,) = traffic.incoming.values()
    assert (count.messages, count.size_bytes, sum(count.sizes)) == (8000, 1_200_000, 4000)
    assert list(traffic.incoming) == [Incoming("orders", "normal")]
    assert {key: each.messages for key, each in traffic.outgoing.items()} == {
        Outgoing("orders", "g0"): 2000,
        Outgoing("orders", "g1"): 2000,
    }
    assert traffic.dead == {Outgoing("orders", "g0"): 4000}
    assert (traffic.commits, traffic.rollbacks) == (3000, 1000)
    assert traffic.totals() == (8000, 1_200_000, 4000, 400_000)


def test_sizes_are_those_of_one_message():
    traffic = Traffic()
    for limit in SIZE_LIMITS:
        traffic.put("orders", "normal", 10, 10 * limit)
    traffic.put("orders", "normal", 1, SIZE_LIMITS[-1] + 1)
    (count,) = traffic.incoming.values()
    assert count.sizes == [1] * (len(SIZE_LIMITS) + 1)
