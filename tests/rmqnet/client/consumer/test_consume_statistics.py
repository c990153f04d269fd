from __future__ import annotations

from rmqnet.client.consumer.consume_statistics import ConsumeStatistics


class _Clock:
    def __init__(self) -> None:
        self.s = 50.0

    def __call__(self) -> float:
        return self.s


def test_rates_of_the_last_minute() -> None:
    clock = _Clock()
    statistics = ConsumeStatistics(clock)
    statistics.pulled("t", 32, 0.5)
    statistics.pulled("t", 8, 0.1)
    statistics.consumed("t", 9, 1, 2.0)
    clock.s += 10
    status = statistics.status("t")
    assert status == {
        "pullRT": 300.0,
        "pullTPS": 4.0,
        "consumeRT": 2000.0,
        "consumeOKTPS": 0.9,
        "consumeFailedTPS": 0.1,
        "consumeFailedMsgs": 1,
    }
    for _ in range(7):
        statistics.sample()
        clock.s += 10
    assert set(statistics.status("t").values()) == {0}, "more than a minute ago"
    assert set(statistics.status("other").values()) == {0}
