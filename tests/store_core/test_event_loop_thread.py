# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading

import pytest

from store_core.event_loop_thread import EventLoopThread


@pytest.fixture
def loop():
    loop = EventLoopThread("test-loop")
    loop.start()
    yield loop
    loop.shutdown()


async def where():
    return threading.current_thread().name


def test_runs_in_its_own_thread(loop):
    assert loop.submit(where()).result(10) == "test-loop"


def test_start_and_stop_may_be_repeated(loop):
    loop.start()
    loop.shutdown()
    loop.shutdown()
    assert not loop.is_running
    loop.start()
    assert loop.submit(where()).result(10) == "test-loop"


def test_stop_cancels_and_waits(loop):
    began, ended = threading.Event(), []

    async def work():
        began.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(threading.current_thread().name)

    future = loop.submit(work())
    assert began.wait(10)
    loop.shutdown()
    assert ended == ["test-loop"]
    assert future.cancelled()
    assert "test-loop" not in {thread.name for thread in threading.enumerate()}


def test_nothing_runs_after_stop(loop):
    loop.shutdown()
    assert not loop.call(print)
    with pytest.raises(RuntimeError, match="test-loop is not running"):
        loop.submit(where())


def test_call_runs_there(loop):
    done = threading.Event()
    assert loop.call(done.set)
    assert done.wait(10)
