# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from rmqnet.client.consumer.consume_statistics import ConsumeStatistics
from rmqnet.client.consumer.listening import ListenerThreads

DEADLINE_S = 10.0


def test_all_run_in_order_in_one_thread() -> None:
    threads = ListenerThreads("one", 1)
    seen: list[int] = []
    done = threading.Event()
    threads.submit(partial(seen.append, number) for number in range(1000))
    threads.submit([done.set])
    assert done.wait(DEADLINE_S)
    assert seen == list(range(1000))
    assert threads.shutdown(DEADLINE_S)


def test_as_many_at_once_as_there_are_threads() -> None:
    threads = ListenerThreads("four", 4)
    meeting = threading.Barrier(5)
    threads.submit([meeting.wait] * 4)
    meeting.wait(DEADLINE_S)
    threads.submit([meeting.wait] * 4)  # by threads that slept
    meeting.wait(DEADLINE_S)
    assert threads.shutdown(DEADLINE_S)
    assert not [each for each in threading.enumerate() if each.name.startswith("four")]


def test_no_more_threads_than_needed() -> None:
    threads = ListenerThreads("lazy", 100)
    for _ in range(3):
        done = threading.Event()
        threads.submit([done.set])
        assert done.wait(DEADLINE_S)
    started = [each for each in threading.enumerate() if each.name.startswith("lazy")]
    threads.shutdown(DEADLINE_S)
    assert len(started) <= 3


def test_a_failed_task_is_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    threads = ListenerThreads("brave", 1)
    done = threading.Event()
    threads.submit([partial(int, "x"), done.set])
    assert done.wait(DEADLINE_S)
    threads.shutdown(DEADLINE_S)
    assert "invalid literal" in caplog.text


def test_stopped_what_runs_ends_and_what_waits_is_dropped() -> None:
    threads = ListenerThreads("stopped", 1)
    begun, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def slow() -> None:
        begun.set()
        go_on.wait(DEADLINE_S)
        seen.append("slow")

    threads.submit([slow, partial(seen.append, "waiting")])
    assert begun.wait(DEADLINE_S)
    assert not threads.shutdown(0.01), "one runs"
    threads.submit([partial(seen.append, "late")])
    go_on.set()
    assert threads.shutdown(DEADLINE_S)
    assert seen == ["slow"]


def test_stopped_by_a_task_of_its_own() -> None:
    threads = ListenerThreads("own", 2)
    ended: list[bool] = []
    threads.submit([lambda: ended.append(threads.shutdown(DEADLINE_S))])
    deadline = time.monotonic() + DEADLINE_S
    while not ended:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert ended == [True]


def test_no_more_threads_to_be_had(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The existing threads do all the work."""
    threads = ListenerThreads("few", 3)
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(DEADLINE_S)

    threads.submit([first])
    assert begun.wait(DEADLINE_S)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    threads.submit([done.set])
    go_on.set()
    assert done.wait(DEADLINE_S)
    monkeypatch.undo()
    threads.shutdown(DEADLINE_S)
    assert "few continues with 1 threads: can't start new thread" in caplog.text


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
