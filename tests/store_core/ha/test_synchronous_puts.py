# SPDX-License-Identifier: Apache-2.0
"""Puts that wait until slaves have their records."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from store_core.errors import StoreClosedError
from store_core.ha.ha_service import HAService
from store_core.message import Message
from store_core.message_store import MessageStore
from store_core.results import PutMessageStatus
from store_core.tools.repair import rebuild_in_place
from tests.store_core.ha.raw_slave import (
    AckingSlave,
    RawSlave,
    log_bytes,
    put,
    put_anyhow,
    serving,
    still_serves,
    store_config,
    wait_until,
)

SYNC = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout": 60_000}


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3) as pool:
        yield pool


def put_one(store):
    return store.put_message(Message("T", b"x" * 100, queue_id=0))


def is_waiting(service, count=1):
    return lambda: len(service._transfers._waiters) == count


def test_without_a_slave_in_time(tmp_path):
    with serving(tmp_path, **{**SYNC, "slave_timeout": 30}) as (store, service):
        result = put_one(store)
        assert result.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        offset = result.append_result.commit_log_offset
        assert store.look_message_by_offset(offset).body == b"x" * 100
        with AckingSlave(service.address, 1):
            wait_until(lambda: service.push_to_slave_max_offset == store.max_phy_offset)
            assert put_one(store).status is PutMessageStatus.PUT_OK


def test_puts_of_many_threads_wait_for_a_slave(tmp_path):
    with serving(tmp_path, **SYNC) as (store, service), AckingSlave(service.address, 1) as slave:
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(lambda _: put_one(store), range(600)))
        assert {result.status for result in results} == {PutMessageStatus.PUT_OK}
        end = store.max_phy_offset
        assert slave.body == log_bytes(store, 1, end)
        assert service.push_to_slave_max_offset == end


def test_three_stores(tmp_path, pool):
    three = {**SYNC, "in_sync_replicas": 3}
    with serving(tmp_path, **three) as (store, service), AckingSlave(service.address, 1):
        waiting = pool.submit(put_one, store)
        end = store.max_phy_offset
        wait_until(lambda: service.push_to_slave_max_offset >= end)
        wait_until(is_waiting(service))
        with AckingSlave(service.address, 1):
            assert waiting.result(20).status is PutMessageStatus.PUT_OK
            assert service.in_sync_replicas_nums() == 3


def test_a_slave_that_reports_too_much_is_no_replica(tmp_path, pool):
    with serving(tmp_path, **SYNC) as (store, service):
        waiting = pool.submit(put_one, store)
        wait_until(is_waiting(service))
        with RawSlave(service.address) as liar:
            liar.report(2**62)
            liar.wait_for_end()
        assert not waiting.done()
        service.shutdown()
        assert waiting.result(20).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


def test_the_store_is_shut_down_while_puts_wait(tmp_path, pool):
    config = store_config(tmp_path, **SYNC)
    store = MessageStore(config)
    with store, HAService(store, port=0) as service:
        with RawSlave(service.address) as slave:
            slave.report(0)
            waiting = [pool.submit(put_one, store) for _ in range(3)]
            wait_until(is_waiting(service, 3))
            store.shutdown()
            statuses = {future.result(20).status for future in waiting}
            assert statuses == {PutMessageStatus.FLUSH_SLAVE_TIMEOUT}
            slave.wait_for_end()
        wait_until(lambda: service.address == "")
        assert service.slaves() == ()
        service.shutdown()
        with pytest.raises(StoreClosedError):
            service.start()
        store.load()
        store.start()
        service.start()
        assert still_serves(service, store)


def test_the_time_for_slaves_runs_while_the_disk_works(tmp_path, monkeypatch):
    with serving(tmp_path, flush_disk_type="SYNC_FLUSH", **SYNC) as (store, service):
        disk_began, given = [], []
        monkeypatch.setattr(
            store.services.flush.group_commit,
            "wait_for",
            lambda *_: disk_began.append(time.monotonic()),  # in vain
        )
        monkeypatch.setattr(service, "wait_for", lambda _, since: bool(given.append(since) or 1))
        assert put_one(store).status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert given[0] <= disk_began[0]
        monkeypatch.setattr(service, "wait_for", lambda *_: False)
        assert put_one(store).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT  # counts before disk


# A master that is shut down and opened again for a repair, while slaves follow and puts wait.


def rebuild_queues(store):
    store.rebuild_consume_queue()


def cut_last_message(store):
    end = store.max_phy_offset
    last = put_anyhow(store, 1)
    store.cut_log(end)
    assert store.max_phy_offset == end < last


@pytest.mark.parametrize("repair", [rebuild_queues, cut_last_message])
def test_slaves_connect_again_after_a_repair(tmp_path, repair):
    with serving(tmp_path, **SYNC) as (store, service):
        address = service.address
        with AckingSlave(address, 1) as slave:
            put(store, 3)
            repair(store)
            slave.thread.join(20)
            assert not slave.thread.is_alive()  # its log may be another one now
        with AckingSlave(address, 1):
            assert put(store, 3) == store.max_phy_offset
            assert service.push_to_slave_max_offset >= store.max_phy_offset


def test_acknowledged_before_a_cut_is_not_acknowledged_after_it(tmp_path, pool):
    with serving(tmp_path, **SYNC) as (store, service), AckingSlave(service.address, 1):
        cut_last_message(store)
        waiting = pool.submit(put_one, store)
        wait_until(is_waiting(service))
        with RawSlave(service.address) as slave:
            slave.report(1)
            slave.follow(store.max_phy_offset)
            assert not waiting.done()
            slave.report(store.max_phy_offset)
            assert waiting.result(20).status is PutMessageStatus.PUT_OK


def test_puts_that_wait_go_on_when_a_repair_begins(tmp_path, pool):
    with serving(tmp_path, **SYNC) as (store, service):
        waiting = pool.submit(put_one, store)
        wait_until(is_waiting(service))
        store.rebuild_consume_queue()
        assert waiting.result(20).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        assert still_serves(service, store)


def test_a_store_that_a_repair_leaves_shut_ends_its_service(live_master, service, monkeypatch):
    def fail(*_, **__):
        raise OSError("the disk is gone")

    monkeypatch.setattr(rebuild_in_place, "rebuild_queues_in_place", fail)
    monkeypatch.setattr(live_master, "load", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        live_master.rebuild_consume_queue()
    wait_until(lambda: not service.address)
    monkeypatch.undo()
    with pytest.raises(StoreClosedError):
        service.start()
    with live_master:
        service.start()
        assert still_serves(service, live_master)


def test_the_service_is_shut_down_during_a_repair(live_master, monkeypatch, pool):
    service = HAService(live_master, port=0)
    service.start()
    stopping = []

    def shut_service_down(*_, **__):
        stopping.append(pool.submit(service.shutdown))
        wait_until(lambda: not service.address)

    monkeypatch.setattr(rebuild_in_place, "rebuild_queues_in_place", shut_service_down)
    live_master.rebuild_consume_queue()
    stopping[0].result(20)
    with HAService(live_master, port=0) as other:  # it no longer counts as the store's
        assert still_serves(other, live_master)


def test_a_service_starts_again_at_once_when_its_store_does(tmp_path):
    with MessageStore(store_config(tmp_path)) as store, HAService(store, port=0) as service:
        put(store, 3)
        for _ in range(20):
            store.shutdown()
            store.load()
            store.start()
            service.start()
            assert still_serves(service, store)
