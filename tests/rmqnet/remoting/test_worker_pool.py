from __future__ import annotations

import threading

import pytest

from rmqnet.remoting.worker_pool import WorkerPool
from tests.rmqnet.scripted_cluster import wait_until

LIMIT_SECONDS = 10


def test_tasks_run_in_threads_of_the_pool_in_their_order() -> None:
    pool = WorkerPool("sends", 1, 1000)
    ran: list[int] = []
    names: set[str] = set()
    done = threading.Event()
    pool.start()
    pool.start()
    for number in range(500):
        assert pool.submit(lambda number=number: ran.append(number))  # type: ignore[misc]
    pool.submit(lambda: names.add(threading.current_thread().name))
    pool.submit(done.set)
    assert done.wait(LIMIT_SECONDS)
    assert ran == list(range(500))
    assert names == {"sends-0"}
    pool.stop()


def test_so_many_run_at_once_and_so_many_wait() -> None:
    pool = WorkerPool("pulls", 3, 2)
    go, running = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        running.release()
        assert go.wait(LIMIT_SECONDS)

    pool.start()
    for _ in range(3):
        assert pool.submit(work)
        assert running.acquire(timeout=LIMIT_SECONDS)
    assert [pool.submit(work) for _ in range(4)] == [True, True, False, False]
    assert pool.waiting == 2
    assert not running.acquire(blocking=False)
    go.set()
    for _ in range(2):
        assert running.acquire(timeout=LIMIT_SECONDS)
    pool.stop()


def test_a_task_that_fails_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    pool = WorkerPool("sends", 1, 10)
    done = threading.Event()

    def fail() -> None:
        raise ValueError("bug")

    pool.start()
    pool.submit(fail)
    pool.submit(done.set)
    assert done.wait(LIMIT_SECONDS)
    pool.stop()
    assert "a task of pool sends" in caplog.text


def test_stop_waits_for_what_runs_and_drops_what_waits() -> None:
    pool = WorkerPool("sends", 1, 10)
    running, go = threading.Event(), threading.Event()
    ran: list[str] = []

    def work() -> None:
        running.set()
        assert go.wait(LIMIT_SECONDS)
        ran.append("first")

    assert not pool.submit(work)  # not started
    pool.start()
    pool.submit(work)
    pool.submit(lambda: ran.append("second"))
    assert running.wait(LIMIT_SECONDS)
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    wait_until(lambda: not pool.submit(work), "it takes no more")
    go.set()
    stopping.join(LIMIT_SECONDS)
    assert ran == ["first"]
    pool.stop()


def test_a_task_may_stop_its_own_pool_and_it_starts_again() -> None:
    pool = WorkerPool("sends", 2, 10)
    pool.start()
    pool.submit(pool.stop)
    wait_until(lambda: not pool.submit(lambda: None), "it takes no more")
    done = threading.Event()
    pool.start()
    assert pool.submit(done.set)
    assert done.wait(LIMIT_SECONDS)
    pool.stop()


def test_one_thread_is_woken_at_a_time_and_wakes_the_next() -> None:
    pool = WorkerPool("pulls", 4, 10)
    pool.start()
    wait_until(lambda: len(pool._idle) == 4, "all are idle")
    sleeping, pool._idle = pool._idle, [threading.Lock() for _ in range(4)]
    for bell in pool._idle:
        bell.acquire()
    bells = list(pool._idle)

    def rung() -> list[int]:
        return [number for number, bell in enumerate(bells) if not bell.locked()]

    tasks = [lambda number=number: number for number in range(3)]  # type: ignore[misc]
    for task in tasks:
        assert pool.submit(task)
    assert rung() == [3]  # the one that slept last
    pool._is_waking = False  # it is there
    assert pool._next_task(bells[3]) is tasks[0]
    assert rung() == [2, 3]
    assert pool._next_task(bells[3]) is tasks[1]
    assert rung() == [2, 3]  # it is still on its way
    assert pool._next_task(bells[3]) is tasks[2]
    assert pool._next_task(bells[3]) is None
    assert pool._idle == [bells[0], bells[1], bells[3]]
    pool._idle = sleeping
    pool.stop()


def test_all_threads_work_where_tasks_take_long() -> None:
    pool = WorkerPool("sends", 8, 100)
    pool.start()
    for _ in range(20):
        meeting = threading.Barrier(8)
        done = threading.Semaphore(0)

        def work(meeting: threading.Barrier = meeting, done: threading.Semaphore = done) -> None:
            meeting.wait(LIMIT_SECONDS)
            done.release()

        assert all(pool.submit(work) for _ in range(8))
        for _ in range(8):
            assert done.acquire(timeout=LIMIT_SECONDS)
    pool.stop()


def test_how_long_the_next_task_waits() -> None:
    pool = WorkerPool("pulls", 1, 2)
    go, running = threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        assert go.wait(LIMIT_SECONDS)

    pool.start()
    assert pool.head_wait_ms == 0
    pool.submit(work)
    assert running.wait(LIMIT_SECONDS)
    assert pool.head_wait_ms == 0
    pool.submit(lambda: None)
    wait_until(lambda: pool.head_wait_ms >= 5, "a task that waits")
    go.set()
    wait_until(lambda: pool.head_wait_ms == 0, "no task that waits")
    pool.stop()
