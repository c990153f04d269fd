"""Sums of a minute, an hour and a day, with the clock set by hand."""

from __future__ import annotations

import pytest

from rmqnet.broker.metrics.stats_items import StatsItems
from rmqnet.broker.metrics.traffic import Traffic


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
