# SPDX-License-Identifier: Apache-2.0
"""The bytes sent to a slave, and the reports it must not send: sockets that behave or do not."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store_core.errors import StoreWriteError
from store_core.files.mapped_file_queue import MappedFileQueue
from store_core.ha.ha_service import HAService
from store_core.layout import REPORT
from store_core.message import Message
from store_core.message_store import MessageStore
from store_core.results import PutMessageStatus
from tests.store_core.ha.raw_slave import (
    SEGMENT,
    AckingSlave,
    RawSlave,
    log_bytes,
    put,
    put_anyhow,
    serving,
    serving_one,
    still_serves,
    store_config,
    wait_until,
    warnings_of,
)

QUIET_S = 0.2


def frames_of(start, stop, batch=700):
    found = []
    while start < stop:
        size = min(batch, stop - start, SEGMENT - start % SEGMENT)
        found.append((start, size))
        start += size
    return found


@pytest.mark.parametrize("start", [1, 100, 700, SEGMENT - 1, SEGMENT, SEGMENT + 5])
def test_transfer_begins_where_the_first_report_says(live_master, service, start):
    end = live_master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(start)
        assert slave.follow(end) == frames_of(start, end)
        assert slave.body == log_bytes(live_master, start, end)


def test_an_empty_slave_gets_the_last_segment(live_master, service):
    end = live_master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(0)
        assert slave.follow(end) == frames_of(end - end % SEGMENT, end)
        slave.report(0, end)
        wait_until(lambda: service.slaves() and service.slaves()[0].ack_offset == end)
        (state,) = service.slaves()
        assert state.request_offset == 0
        assert state.transfer_offset == end


def test_an_empty_master_sends_its_first_record(tmp_path):
    with MessageStore(store_config(tmp_path)) as store, HAService(store, port=0) as service:
        slave = AckingSlave(service.address, 0)
        wait_until(lambda: service.slaves() and service.slaves()[0].request_offset == 0)
        end = put(store, 1)
        wait_until(lambda: slave.end == end)
        assert slave.frames == [(0, end)]


def test_what_is_put_later_follows(live_master, service):
    begin = end = live_master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(begin)
        for _ in range(40):
            end = put(live_master, 1)
            slave.follow(end)
        assert slave.body == log_bytes(live_master, begin, end)
        assert all(size for _, size in slave.frames)  # nothing waited for a heartbeat


def test_nothing_is_sent_before_the_first_report(tmp_path):
    with serving_one(tmp_path, ha_send_heartbeat_interval=20) as (store, service, slave):
        slave.socket.sendall(REPORT.pack(max_offset=0)[:7])
        put_anyhow(store, 1)
        assert select.select([slave.socket], [], [], QUIET_S) == ([], [], [])
        assert service.slaves()[0].transfer_offset == -1
        assert service.in_sync_replicas_nums() == 1


def test_reports_that_come_byte_by_byte(live_master, service):
    end = live_master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for offset in (SEGMENT, SEGMENT + 700, end):
            for byte in REPORT.pack(max_offset=offset):
                slave.socket.sendall(bytes([byte]))
            if offset == SEGMENT:
                slave.follow(end)
        wait_until(lambda: service.slaves() and service.slaves()[0].ack_offset == end)
        assert slave.frames == frames_of(SEGMENT, end)


def test_of_several_reports_the_last_whole_one_counts(live_master, service):
    end = live_master.max_phy_offset
    with RawSlave(service.address) as slave:
        half = REPORT.pack(max_offset=SEGMENT + 10)
        slave.socket.sendall(
            REPORT.pack(max_offset=2**60) + REPORT.pack(max_offset=SEGMENT) + half[:4]
        )
        slave.follow(end)
        assert slave.frames == frames_of(SEGMENT, end)
        slave.socket.sendall(half[4:])
        wait_until(lambda: service.slaves() and service.slaves()[0].ack_offset == SEGMENT + 10)


def test_heartbeats_say_where_the_log_goes_on(tmp_path):
    with serving(tmp_path, ha_send_heartbeat_interval=50) as (store, service):
        end = store.max_phy_offset
        with RawSlave(service.address) as slave:
            slave.report(end)
            begin = time.monotonic()
            assert [slave.frame() for _ in range(4)] == [(end, 0)] * 4
            assert time.monotonic() - begin >= 3 * 0.049
            stop = put_anyhow(store, 1)
            slave.follow(stop)
            assert slave.body == log_bytes(store, end, stop)
            assert slave.frame() == (stop, 0)


def test_a_late_first_report_is_answered_by_a_heartbeat_first(tmp_path):
    with serving_one(tmp_path, ha_send_heartbeat_interval=50) as (_, _, slave):
        assert select.select([slave.socket], [], [], 0.1)[0] == []
        slave.report(1)
        assert slave.frame() == (1, 0)
        assert slave.frame() == (1, 700)


def test_a_slave_that_says_nothing_is_dropped(tmp_path, caplog):
    with serving(tmp_path, ha_housekeeping_interval=1000) as (store, service):
        end = store.max_phy_offset
        with RawSlave(service.address) as silent, RawSlave(service.address) as talks:
            done, reported = threading.Event(), []

            def talk():
                while not done.wait(0.02):
                    talks.report(end)
                    reported.append(end)

            thread = threading.Thread(target=talk)
            thread.start()
            try:
                silent.wait_for_end()
                wait_until(lambda: len(service.slaves()) == 1)
                enough = len(reported) + 60  # for longer than the other one was silent
                wait_until(lambda: len(reported) > enough)
                assert service.slaves()[0].ack_offset == end
            finally:
                done.set()
                thread.join()
    (text,) = warnings_of(caplog)
    assert "has sent no report for 1" in text


def test_a_peer_that_only_begins_a_report_is_dropped(tmp_path, caplog):
    """Bytes that come now and then do not keep a place that a slave could use."""
    with serving_one(tmp_path, ha_housekeeping_interval=1000) as (_, _, peer):
        peer.socket.settimeout(0.25)
        sent = 0
        with suppress(ConnectionError):  # dropped
            for _ in range(7):  # too few for a report
                peer.socket.sendall(b"\0")
                sent += 1
                with suppress(socket.timeout):
                    assert peer.socket.recv(1) == b""
                    break
        assert 1 < sent < 7
    (text,) = warnings_of(caplog)
    assert "has sent no report for " in text
    assert "haHousekeepingInterval" in text


def test_bytes_that_wait_in_memory_follow_when_they_are_written(tmp_path):
    pool = {"transient_store_pool_enable": True, "transient_store_pool_size": 2}
    with serving_one(tmp_path, **pool) as (store, _, slave):
        wait_until(lambda: store.max_phy_offset)
        slave.report(1)
        end = put(store, 1)
        slave.follow(end)


@pytest.mark.parametrize("pool", [False, True], ids=["", "transient store pool"])
def test_a_blank_record_is_sent_with_what_follows_it(tmp_path, monkeypatch, pool):
    """A master killed in between cuts the blank record, and puts another record there."""
    changes = {"transient_store_pool_enable": pool, "transient_store_pool_size": 2}
    with serving_one(tmp_path, ha_send_heartbeat_interval=20, **changes) as (store, service, slave):
        wait_until(lambda: store.max_phy_offset)
        slave.report(1)
        end = store.max_phy_offset
        while SEGMENT - end % SEGMENT > 1000:
            end = put(store, 1)
        slave.follow(end)
        with monkeypatch.context() as patched:
            patched.setattr(MappedFileQueue, "writable_file", no_space)
            result = store.put_message(Message("T", bytes(1000), queue_id=0))
            assert result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED
            assert store.replicable_offset == end
            wait_until(lambda: store.max_phy_offset == end - end % SEGMENT + SEGMENT)
            assert store.replicable_offset == end
            with RawSlave(service.address) as another:
                another.report(end)
                assert another.frame() == (end, 0)
        end = put(store, 1)
        slave.follow(end)
        assert slave.body == log_bytes(store, 1, end)


def no_space(queue, start_offset):
    raise StoreWriteError("no space left", queue.directories[0])


def test_a_slave_may_have_slaves(live_master, tmp_path):
    end = live_master.max_phy_offset
    config = store_config(tmp_path / "slave", broker_role="SLAVE")
    with MessageStore(config) as middle, HAService(middle, port=0) as service:
        middle.append_to_commit_log(0, log_bytes(live_master, 0, 2000))
        with RawSlave(service.address) as slave:
            slave.report(1)
            slave.follow(2000)
            middle.append_to_commit_log(2000, log_bytes(live_master, 2000, 4000))
            slave.follow(4000)
            assert slave.body == log_bytes(live_master, 1, 4000)
    assert end > 4000


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=12),
    reads=st.lists(st.integers(1, 5000), min_size=1),
    start=st.integers(1, 8000),
    buffer=st.sampled_from([2048, None]),
)
def test_received_bytes_are_the_log(service, live_master, sizes, reads, start, buffer):
    with RawSlave(service.address, buffer, reads) as slave, ThreadPoolExecutor(1) as pool:
        slave.report(start)
        putting = pool.submit(lambda: [put(live_master, 1, size) for size in sizes])
        while not putting.done() or slave.end < live_master.max_phy_offset:
            if select.select([slave.socket], [], [], 0.001)[0]:
                slave.frame()
        assert slave.body == log_bytes(live_master, start, live_master.max_phy_offset)


def test_flow_control(tmp_path):
    limits = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 6000}
    with serving(tmp_path, **limits) as (store, service):
        end = store.max_phy_offset
        assert 6000 < end < 17_000
        begin = time.monotonic()
        with RawSlave(service.address) as slave:
            slave.report(end - 9000)
            slave.follow(end - 3000)
            slave.follow(end)
            assert time.monotonic() - begin >= 0.99
            assert all(size > 0 for _, size in slave.frames)
            assert len(slave.frames) < 9000 // 700 + 5
            assert service.slaves()[0].bytes_in_second == 6000
        assert slave.body == log_bytes(store, end - 9000, end)


def test_an_empty_log_is_no_reason_to_make_a_new_slave_anew(tmp_path, caplog):
    """A new slave that wants all of the log asks for offset 1 at first."""
    store = MessageStore(store_config(tmp_path))
    with store, HAService(store, port=0) as service, RawSlave(service.address) as slave:
        slave.report(1)
        slave.wait_for_end()
    (text,) = warnings_of(caplog)
    assert "this log is empty: a new slave reconnects by itself" in text


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (-1, "reported offset -1, which no log has"),
        (-(2**63), "which no log has"),
        (1 << 40, "its log ends at 1099511627776, this one at "),
        (2**63 - 1, "copy of another master"),
    ],
)
def test_a_first_report_that_cannot_be(live_master, service, caplog, first, text):
    with RawSlave(service.address) as slave:
        address = slave.address
        slave.report(first)
        slave.wait_for_end()
    wait_until(lambda: not service.slaves())
    (found,) = warnings_of(caplog)
    assert text in found
    assert found.startswith(f"slave {address}: ")
    assert service.push_to_slave_max_offset == 0
    assert still_serves(service, live_master)


def test_a_report_just_beyond_the_end(live_master, service):
    with RawSlave(service.address) as slave:
        slave.report(live_master.max_phy_offset + 1)
        slave.wait_for_end()
    with RawSlave(service.address) as slave:
        slave.report(live_master.max_phy_offset)
        wait_until(lambda: service.push_to_slave_max_offset == live_master.max_phy_offset)


@pytest.mark.parametrize("beyond", [True, False])
def test_an_acknowledgement_of_what_was_not_sent(live_master, service, caplog, beyond):
    end = live_master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(0)
        slave.follow(end)
        slave.report(end + 1 if beyond else -5)
        slave.wait_for_end()
    wait_until(lambda: not service.slaves())
    (found,) = warnings_of(caplog)
    what = f"offset {end + 1}, but was sent data only up to {end}" if beyond else "-5"
    assert what in found
    assert service.push_to_slave_max_offset == 0


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"]
)
def test_somebody_else_who_connects(live_master, service, garbage):
    with RawSlave(service.address) as slave:
        slave.socket.sendall(garbage)
        slave.wait_for_end()
    assert still_serves(service, live_master)


def test_garbage_of_many_disturbs_nobody(live_master, service):
    rng = random.Random(5)
    with AckingSlave(service.address, 1) as good:
        for _ in range(30):
            with RawSlave(service.address) as bad:
                try:
                    for _ in range(rng.randrange(4)):
                        bad.socket.sendall(rng.randbytes(rng.randrange(1, 30)))
                except ConnectionError:
                    pass
            end = put(live_master, 1)
        wait_until(lambda: good.end == end)
        wait_until(lambda: len(service.slaves()) == 1)
        assert good.body == log_bytes(live_master, 1, end)


def test_an_offset_below_the_log_gets_heartbeats(tmp_path, caplog):
    with serving(tmp_path, ha_send_heartbeat_interval=30) as (store, service):
        assert store.wait_for_dispatch(20)
        store._open.files.segments.delete_files_before(SEGMENT)
        with RawSlave(service.address) as slave:
            slave.report(100, 100)
            slave.report(100)
            put_anyhow(store, 3)
            assert [slave.frame() for _ in range(3)] == [(100, 0)] * 3
    (text,) = warnings_of(caplog)
    assert f"asks for offset 100, but the log begins at {SEGMENT}" in text


def _stall(service, store, first=1):
    """Return a slave that asked for the log and reads nothing; the master cannot go on."""
    slave = RawSlave(service.address, 2048)
    slave.report(first)
    address = slave.address

    def is_blocked():
        states = [s for s in service.slaves() if s.address == address]
        return bool(states) and states[0].transfer_offset > first and _settled(service, address)

    wait_until(is_blocked)
    assert service.slaves()[0].transfer_offset < store.max_phy_offset
    return slave


def _settled(service, address):
    def sent():
        return [s.transfer_offset for s in service.slaves() if s.address == address]

    before = sent()
    time.sleep(0.05)
    return sent() == before


@pytest.fixture
def large(tmp_path):
    """A log too large for the buffers of any socket."""
    config = store_config(
        tmp_path / "large", mapped_file_size_commit_log=1 << 20, ha_transfer_batch_size=1 << 15
    )
    with MessageStore(config) as store:
        put(store, 160, 100_000)
        assert store.wait_for_dispatch(20)
        yield store


def test_a_slave_that_does_not_read_holds_nothing(large, caplog):
    with HAService(large, port=0) as service, _stall(service, large) as stalled:
        segments = large._open.files.segments
        files = segments.mapped_files
        wait_until(lambda: not any(file._holds for file in files))  # a flush may hold one, too
        with AckingSlave(service.address, 1) as good:
            end = put(large, 1)
            wait_until(lambda: good.end == end)
            assert good.body == log_bytes(large, 1, end)
        assert large.wait_for_dispatch(20)
        segments.delete_files_before(files[-1].file_from_offset)
        wait_until(lambda: all(file._map is None and file._fd == -1 for file in files[:-1]))
        assert not warnings_of(caplog)
        stalled.wait_for_end()
    (text,) = warnings_of(caplog)
    assert "its segment was deleted before this slave received it" in text


def test_a_slave_that_reads_again_goes_on(large):
    with HAService(large, port=0) as service, _stall(service, large) as stalled:
        stalled.follow(large.max_phy_offset)
        assert stalled.body == log_bytes(large, 1, large.max_phy_offset)
