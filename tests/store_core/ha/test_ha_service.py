# SPDX-License-Identifier: Apache-2.0
"""Connections that a master accepts, and how it starts and stops."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from store_core.errors import HAError, StoreClosedError, StoreConfigError
from store_core.ha import ha_service
from store_core.ha.ha_service import GroupTransferService, HAService
from store_core.message_store import MessageStore
from tests.store_core.ha.raw_slave import (
    SEGMENT,
    AckingSlave,
    RawSlave,
    put,
    serving_one,
    still_serves,
    store_config,
    wait_until,
    warnings_of,
)
from tests.store_core.test_message_store_fork import in_child

LONG_MS = 60_000


def test_more_connections_than_are_allowed(live_master, service, monkeypatch, caplog):
    monkeypatch.setattr(ha_service, "MAX_CONNECTIONS", 3)
    with ExitStack() as stack:
        slaves = [stack.enter_context(RawSlave(service.address)) for _ in range(3)]
        wait_until(lambda: len(service.slaves()) == 3)
        with RawSlave(service.address) as refused:
            refused.wait_for_end()
        slaves[0].socket.close()
        wait_until(lambda: len(service.slaves()) == 2)
        assert still_serves(service, live_master)
    (text,) = warnings_of(caplog)
    assert "is refused: 3 slaves are already connected" in text


@pytest.mark.parametrize(
    "allowed",
    [
        ["127.0.0.1"],
        ["10.0.0.0/8", "127.0.0.0/30"],
        ["::ffff:127.0.0.1"],  # IPv4 written as IPv6
        ["::ffff:127.0.0.0/104"],
    ],
)
def test_slaves_that_are_allowed(live_master, allowed):
    with HAService(live_master, port=0, allowed_slaves=allowed) as service:
        assert still_serves(service, live_master)


@pytest.mark.parametrize("allowed", [[], ["10.0.0.0/8", "::1", "::ffff:10.0.0.0/104"]])
def test_slaves_that_are_not_allowed(live_master, allowed, caplog):
    with HAService(live_master, port=0, allowed_slaves=allowed) as service:
        with RawSlave(service.address) as slave:
            slave.wait_for_end()
        assert service.slaves() == ()
    (text,) = warnings_of(caplog)
    assert "not in allowed_slaves" in text


def test_an_ipv4_address_that_a_socket_of_ipv6_shows():
    assert str(ha_service._ip_address("::ffff:10.0.0.7")) == "10.0.0.7"
    assert str(ha_service._ip_address("fe80::1%eth0")) == "fe80::1"


def test_ipv6(live_master):
    with HAService(live_master, host="::1", port=0, allowed_slaves=["::1"]) as service:
        assert service.address.startswith("[::1]:")
        assert still_serves(service, live_master)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "slave.example", "10.0.0.1/8"])
def test_allowed_slaves_are_addresses_or_networks(live_master, text):
    with pytest.raises(StoreConfigError, match=r"allowed_slaves: .*give addresses or networks"):
        HAService(live_master, allowed_slaves=[text])


def test_listening_to_all_is_warned_of(live_master, caplog):
    with HAService(live_master, host="0.0.0.0", port=0):
        assert "any host that reaches this port gets all messages" in warnings_of(caplog)[0]
    caplog.clear()
    with HAService(live_master, host="0.0.0.0", port=0, allowed_slaves=["10.0.0.0/8"]):
        assert not warnings_of(caplog)


def test_the_port_is_taken(live_master, service):
    port = int(service.address.rpartition(":")[2])
    service.shutdown()
    with socket.create_server(("127.0.0.1", port)):
        other = HAService(live_master, port=port)
        with pytest.raises(HAError, match=rf"cannot listen for slaves at 127.0.0.1:{port}: .*haL"):
            other.start()
        assert other.address == ""
    with HAService(live_master, port=port) as again:  # nothing was left
        assert still_serves(again, live_master)


def test_the_port_of_the_configuration(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = store_config(tmp_path, ha_listen_port=port)
    with MessageStore(config) as store, HAService(store) as service:
        assert service.address == f"127.0.0.1:{port}"


def test_a_host_that_is_none(live_master):
    with pytest.raises(HAError, match=r"cannot listen for slaves at no\.such\.host\.invalid:0"):
        HAService(live_master, host="no.such.host.invalid", port=0).start()


def test_too_many_open_files_pass(live_master, service, monkeypatch, caplog):
    monkeypatch.setattr(ha_service, "_REST_AFTER_ACCEPT_ERROR_S", 0.01)
    accept, failures = socket.socket.accept, [OSError(errno.EMFILE, "too many")] * 3

    def failing(listener):
        if failures:
            raise failures.pop()
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    assert still_serves(service, live_master)
    assert len(warnings_of(caplog)) == 3


def test_a_store_that_is_shut_down_first_ends_its_connections(tmp_path, caplog):
    store = MessageStore(store_config(tmp_path))
    with store, HAService(store, port=0) as service:
        put(store, 30)
        with AckingSlave(service.address, 1) as slave:
            store.shutdown()
            slave.thread.join(20)
            assert not slave.thread.is_alive()
    assert not warnings_of(caplog)


def test_start_and_shutdown_may_be_repeated(live_master):
    service = HAService(live_master, port=0)
    service.shutdown()
    for _ in range(3):
        service.start()
        address = service.address
        service.start()
        assert service.address == address
        with RawSlave(service.address) as slave:
            slave.report(1)
            slave.follow(live_master.max_phy_offset)
            slave.follow(put(live_master, 1))  # shut down while it rests after that
            assert all(size for _, size in slave.frames)  # it did not wait for a heartbeat
        service.shutdown()
        service.shutdown()
        assert service.address == ""
        with pytest.raises(ConnectionRefusedError):
            RawSlave(address)
    assert "HAService" not in {thread.name for thread in threading.enumerate()}


def test_one_service_of_a_store(live_master, service):
    other = HAService(live_master, port=0)
    with pytest.raises(HAError, match="another service replicates"):
        other.start()
    other.shutdown()
    put(live_master, 1)
    assert still_serves(service, live_master)


def test_a_store_that_is_not_open(tmp_path):
    with pytest.raises(StoreClosedError):
        HAService(MessageStore(store_config(tmp_path)), port=0).start()


def test_shutdown_ends_connections(live_master):
    with ExitStack() as stack:
        with HAService(live_master, port=0) as service:
            slaves = [stack.enter_context(RawSlave(service.address)) for _ in range(5)]
            slaves[0].report(1)
            wait_until(lambda: len(service.slaves()) == 5)
        for slave in slaves:
            slave.wait_for_end()
    assert service.slaves() == ()


def test_what_is_known_of_slaves(live_master, service):
    end = live_master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(SEGMENT)
        slave.follow(end)
        wait_until(lambda: service.slaves() and service.slaves()[0].transfer_offset == end)
        (state,) = service.slaves()
        assert state.address == slave.address
        assert (state.request_offset, state.ack_offset) == (SEGMENT, SEGMENT)
        assert state.is_in_sync
        assert service.in_sync_replicas_nums() == 2
    wait_until(lambda: not service.slaves())


@pytest.mark.parametrize(("gap", "count"), [(1000, 1), (1001, 2)])
def test_in_sync_is_who_lacks_less_than_the_gap(tmp_path, gap, count):
    with serving_one(tmp_path, ha_max_gap_not_in_sync=gap) as (store, service, slave):
        slave.report(store.max_phy_offset - 1000)
        wait_until(lambda: service.slaves() and service.slaves()[0].ack_offset > 0)
        assert service.in_sync_replicas_nums() == count


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


# A forked child must not touch, nor keep open, the files and sockets its parent serves from.


def test_a_child_that_ends_as_a_block_does_leaves_the_service_alone(live_master, service):
    with AckingSlave(service.address, 1):
        assert in_child(lambda: service.__exit__(None, None, None)) is None
        assert in_child(service.start)[0] == StoreClosedError.__name__
        assert in_child(service.slaves) == []
        end = put(live_master, 3)
        wait_until(lambda: service.push_to_slave_max_offset == end)
    assert still_serves(service, live_master)


@pytest.fixture
def child():
    """Forks a child that lives until the test is over."""
    read, write = os.pipe()
    pids = []

    def fork():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pids.append(os.fork())
        if not pids[-1]:
            os.close(write)
            os.read(read, 1)
            os._exit(0)

    yield fork
    os.close(write)
    os.close(read)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0


def test_a_child_that_lives_on_keeps_neither_slaves_nor_the_port(live_master, service, child):
    port = int(service.address.rpartition(":")[2])
    with RawSlave(service.address) as slave:
        slave.report(1)
        slave.frame()
        child()
        service.shutdown()
        slave.wait_for_end()
    with HAService(live_master, port=port) as again:
        assert still_serves(again, live_master)
