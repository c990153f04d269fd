from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from store_core.ha.ha_service import GroupTransferService
from tests.store_core.ha.raw_slave import wait_until

LONG_MS = 60_000


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as pool:
        yield pool


def are_waiting(service, count):
    return lambda: len(service._waiters) == count


def test_an_offset_that_is_acknowledged_already(pool):
    service = GroupTransferService(2, LONG_MS)
    service.note_acks([100])
    assert service.wait_for(100)
    assert service.wait_for(1)


def test_waits_for_the_offset(pool):
    service = GroupTransferService(2, LONG_MS)
    low, high = pool.submit(service.wait_for, 100), pool.submit(service.wait_for, 101)
    wait_until(are_waiting(service, 2))
    service.note_acks([99])
    assert len(service._waiters) == 2
    service.note_acks([100])
    assert low.result(10)
    assert not high.done()
    service.note_acks([150])
    assert high.result(10)


@pytest.mark.parametrize(("acks", "enough"), [([9, 9], False), ([10, 9], False), ([10, 11], True)])
def test_as_many_slaves_as_are_asked_for(acks, enough):
    service = GroupTransferService(3, 1)
    service.note_acks(acks)
    assert service.wait_for(10) is enough


def test_not_in_time():
    service = GroupTransferService(2, 20)
    service.note_acks([9])
    assert not service.wait_for(10)
    assert not service._waiters


def test_a_slave_that_has_gone_counts_no_more():
    service = GroupTransferService(2, 1)
    service.note_acks([10])
    assert service.wait_for(10)
    service.note_acks([])
    assert not service.wait_for(10)


def test_who_was_told_once_stays_told(pool):
    service = GroupTransferService(2, LONG_MS)
    waiting = pool.submit(service.wait_for, 10)
    wait_until(are_waiting(service, 1))
    service.note_acks([10])
    service.note_acks([])
    assert waiting.result(10)


def test_closing_lets_all_go(pool):
    service = GroupTransferService(2, LONG_MS)
    waiting = [pool.submit(service.wait_for, offset) for offset in (1, 2, 3)]
    wait_until(are_waiting(service, 3))
    service.close()
    assert [future.result(10) for future in waiting] == [False] * 3
    service.note_acks([10])
    assert not service.wait_for(1)


def test_many_threads_and_offsets(pool):
    service = GroupTransferService(2, LONG_MS)
    done = threading.Event()

    def acknowledge():
        ack = 0
        while not done.wait(0.0001):
            ack += 7
            service.note_acks([ack])

    thread = threading.Thread(target=acknowledge)
    thread.start()
    try:
        assert all(pool.map(service.wait_for, range(0, 3000, 3)))
    finally:
        done.set()
        thread.join()
    assert not service._waiters


def test_the_time_counts_from_the_append():
    service = GroupTransferService(2, 60_000)
    begin = time.monotonic()
    assert not service.wait_for(10, begin - 61)
    assert time.monotonic() - begin < 30
    service.note_acks([10])
    assert service.wait_for(10, begin - 61)
