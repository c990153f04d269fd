from __future__ import annotations

import threading

import pytest

from rmqnet.broker.metrics.traffic import SIZE_LIMITS, Incoming, Outgoing, Traffic, message_type


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
