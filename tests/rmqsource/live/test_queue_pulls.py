# SPDX-License-Identifier: Apache-2.0
"""Results come in the order of the jobs, however long each takes, within a limit of bytes."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rmqsource.live.queue_pulls import PullAhead
from store_core.event_loop_thread import EventLoopThread


@pytest.fixture
def thread():
    found = EventLoopThread("test")
    found.start()
    yield found
    found.shutdown()


def ahead(thread, jobs, work, size=lambda result: 1, at_once=4, most_bytes=100):
    return PullAhead(thread, jobs, work, size, at_once=at_once, most_bytes=most_bytes)


def test_results_are_in_order(thread):
    async def work(number):
        await asyncio.sleep(0.001 * (number * 7 % 5))
        return number

    assert list(ahead(thread, range(200), work)) == list(range(200))
    assert list(ahead(thread, [], work)) == []


def test_so_many_at_once_and_no_more(thread):
    running, most = [0], [0]

    async def work(number):
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0)
        running[0] -= 1
        return number

    assert len(list(ahead(thread, range(50), work, at_once=3))) == 50
    assert most == [3]


def test_nothing_is_begun_while_enough_waits(thread):
    begun = []
    full = threading.Event()

    async def work(number):
        begun.append(number)
        if number == 4:
            full.set()
        return number

    results = iter(ahead(thread, range(1000), work, at_once=1, most_bytes=5))
    assert full.wait(5)
    thread.submit(turns(100)).result()  # in each of them another job could begin
    assert len(begun) <= 6
    assert [next(results) for _ in range(1000)] == list(range(1000))


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


def test_an_error_comes_after_what_was_before_it(thread):
    async def work(number):
        if number == 5:
            raise ValueError("told to")
        return number

    results = iter(ahead(thread, range(10), work, at_once=1))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="told to"):
        next(results)


def test_stopped(thread):
    async def work(number):
        await asyncio.sleep(60)

    running = ahead(thread, range(10), work)
    running.shutdown()
    thread.shutdown()
    assert not thread.is_running


def test_what_a_job_left_comes_before_the_next(thread):
    async def work(numbers):
        return numbers[:2], numbers[2:]

    jobs = [list(range(start, start + 7)) for start in range(0, 70, 7)]
    results = PullAhead(
        thread, jobs, work, lambda r: len(r[0]), lambda r: r[1] or None, at_once=3, most_bytes=4
    )
    assert [number for done, _ in results for number in done] == list(range(70))
