# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqnet import Message, Producer, serve
from rmqnet.remoting.remoting_server import RemotingServer, RemotingServerConfig
from rmqnet.remoting.shared_limit import SharedLimit
from rmqnet.remoting.tls import ServerTls
from rmqnet.remoting.worker_pool import WorkerPool
from tests.rmqnet.remoting.raw_client import RawClient
from tests.rmqnet.scripted_cluster import wait_until

LIMIT_SECONDS = 10
CERTIFICATES = Path(__file__).parent / "certificates"


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
    pool.shutdown()


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
    pool.shutdown()


def test_a_task_that_fails_does_not_end_its_thread(caplog: pytest.LogCaptureFixture) -> None:
    pool = WorkerPool("sends", 1, 10)
    done = threading.Event()

    def fail() -> None:
        raise ValueError("bug")

    pool.start()
    pool.submit(fail)
    pool.submit(done.set)
    assert done.wait(LIMIT_SECONDS)
    pool.shutdown()
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
    stopping = threading.Thread(target=pool.shutdown)
    stopping.start()
    wait_until(lambda: not pool.submit(work), "it takes no more")
    go.set()
    stopping.join(LIMIT_SECONDS)
    assert ran == ["first"]
    pool.shutdown()


def test_a_task_may_stop_its_own_pool_and_it_starts_again() -> None:
    pool = WorkerPool("sends", 2, 10)
    pool.start()
    pool.submit(pool.shutdown)
    wait_until(lambda: not pool.submit(lambda: None), "it takes no more")
    done = threading.Event()
    pool.start()
    assert pool.submit(done.set)
    assert done.wait(LIMIT_SECONDS)
    pool.shutdown()


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
    pool._is_waking = False  # it has arrived
    assert pool._next_task(bells[3]) is tasks[0]
    assert rung() == [2, 3]
    assert pool._next_task(bells[3]) is tasks[1]
    assert rung() == [2, 3]  # it is still on its way
    assert pool._next_task(bells[3]) is tasks[2]
    assert pool._next_task(bells[3]) is None
    assert pool._idle == [bells[0], bells[1], bells[3]]
    pool._idle = sleeping
    pool.shutdown()


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
    pool.shutdown()


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
    pool.shutdown()


# How clients are treated when the process has no room for more.


@contextlib.contextmanager
def descriptors_for_clients(count: int) -> Iterator[None]:
    """Let this process open about so many more files before it refuses clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = os.open(os.devnull, os.O_RDONLY)
    os.close(found)
    resource.setrlimit(resource.RLIMIT_NOFILE, ((found + count) * 4 // 3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ended(client: socket.socket) -> bool:
    client.settimeout(0.01)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
    except OSError:  # nothing comes
        return False


def test_idle_clients_leave_descriptors_to_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"mappedFileSizeCommitLog": 1 << 16}
    with serve(tmp_path / "store", settings=settings) as cluster:
        port = cluster.controller.config.listen_port
        with Producer("p", cluster.namesrv_addr) as producer, contextlib.ExitStack() as idle:
            producer.send(Message("t", b"first"))
            with descriptors_for_clients(200):
                before = cluster.state().connections
                clients = [  # both ends are in this process
                    idle.enter_context(socket.create_connection(("127.0.0.1", port)))
                    for _ in range(110)
                ]
                wait_until(lambda: any(map(ended, clients[-10:])), "the last are refused")
                wait_until(lambda: cluster.state().connections > before, "the first are taken")
                for number in range(10):  # each message needs a file of the log
                    producer.send(Message("t", b"%d" % number * 40_000))
    assert caplog.text.count("are refused") == 1


def test_clients_whose_handshake_hangs_count() -> None:
    tls = ServerTls(str(CERTIFICATES / "server.pem"), str(CERTIFICATES / "server.key"))
    config = RemotingServerConfig(max_connections=3)
    server = RemotingServer("s", config, tls.ssl_context())
    port = server.start("127.0.0.1", 0)
    try:
        with contextlib.ExitStack() as hanging:
            for _ in range(3):
                hanging.enter_context(RawClient(port))
            with RawClient(port) as late:
                late.wait_end()
            assert server.connections == 0
    finally:
        server.shutdown()


class Connection:
    reason = ""
    is_aborted = False

    def __init__(self, address: str) -> None:
        self.address = address

    def abort(self) -> None:
        self.is_aborted = True


def connections() -> Any:
    return [Connection(f"10.0.0.{number}:1") for number in range(3)]


def test_who_has_most_goes_and_who_is_gone_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    small, large, late = connections()
    limit = SharedLimit("answers", "it does not read", 100)
    limit.note(small, 30)
    limit.note(large, 60)
    limit.note(late, 10)
    assert not any(each.is_aborted for each in (small, large, late))
    limit.note(late, 11)
    assert [each.is_aborted for each in (small, large, late)] == [False, True, False]
    assert large.reason == "it does not read"
    assert caplog.messages == [
        "answers take 101 bytes, more than 100; disconnecting 10.0.0.1:1, which has 60 of them"
    ]
    limit.note(large, 0)  # its end is reported
    limit.note(late, 70)
    assert not small.is_aborted
    limit.note(late, 0)
    limit.note(late, 71)
    assert late.is_aborted


def test_one_alone_may_have_too_many() -> None:
    one, other, _ = connections()
    limit = SharedLimit("answers", "it does not read", 100)
    limit.note(one, 1)
    limit.note(other, 101)
    assert (one.is_aborted, other.is_aborted) == (False, True)
    limit.note(one, 100)
    assert not one.is_aborted
