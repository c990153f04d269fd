# SPDX-License-Identifier: Apache-2.0
"""A slave's reports, and its recovery from broken connections and broken masters."""

from __future__ import annotations

import socket
import threading

import pytest

from store_core.errors import HAError, StoreWriteError
from store_core.event_loop_thread import EventLoopThread
from store_core.ha.follow_state import ConnectionState
from store_core.ha.ha_client import HAClient
from store_core.ha.master_probe import probe
from store_core.ha.peer import ConnectionLostError
from store_core.message import Message
from store_core.message_store import MessageStore
from store_core.snapshot.store_snapshot import StoreSnapshot
from tests.store_core.ha.raw_master import HEADER, REPORT, RawMaster
from tests.store_core.ha.stores import (
    SEGMENT,
    assert_clean,
    log_bytes,
    put,
    root_of,
    store_config,
    wait_until,
)


class Scripted(RawMaster):
    """Runs the script on each connection, then closes it."""

    def __init__(self, script):
        self.script = script
        super().__init__(b"", SEGMENT)

    def serve(self, sock):
        self.script(self, sock)


def error_of(client):
    wait_until(lambda: client.state().error)
    return client.state().error


def test_only_what_is_on_the_disk_is_reported(slave, master, monkeypatch):
    flush, may_flush, flushed = slave.flush, threading.Event(), []

    def slow_flush():
        assert may_flush.wait(20)
        flushed.append(flush())
        return flushed[-1]

    monkeypatch.setattr(slave, "flush", slow_flush)
    with HAClient(slave, master.address) as client:
        may_flush.set()  # the connection's socket
        master.wait_until(lambda: master.requests)
        may_flush.clear()
        wait_until(lambda: slave.max_phy_offset == master.end)
        wait_until(lambda: client.state().is_caught_up)
        assert not may_flush.is_set()
        before = len(master.reports)
        master.wait_until(lambda: len(master.reports) > before)  # a heartbeat
        assert set(master.reports) <= {0, *flushed}
        may_flush.set()
        master.wait_until(lambda: master.end in master.reports)
        wait_until(lambda: client.state().acked_offset == master.end)
        assert set(master.reports) <= {0, *flushed}
        assert slave.flushed_where >= max(master.reports)


def test_what_was_appended_is_reported(slave, master, monkeypatch):
    monkeypatch.setattr(slave, "flush", lambda: pytest.fail("not asked for"))
    with HAClient(slave, master.address, ack="appended"):
        master.wait_until(lambda: master.end in master.reports)
        ends = master.reports.copy()
        assert sorted(ends) == ends


def test_nothing_is_reported(slave, master):
    with HAClient(slave, master.address, ack="never") as client:
        assert client.wait_for(master.end, 10)
        master.wait_until(lambda: len(master.reports) > 2)
        assert set(master.reports) == {0}
        assert client.state().acked_offset == 0


def test_goes_on_after_breaks_anywhere(slave, written_log):
    master = RawMaster(written_log, SEGMENT, most=900)
    with master, HAClient(slave, master.address, first_offset=0) as client:
        for count in (1, 11, 12, 13, 500, 3000, 900 * 40 + 5, 7, 100_000):
            before = master.accepted
            master.after_bytes = count
            master.drop()
            master.wait_until(lambda before=before: master.accepted > before)
            wait_until(lambda: master.after_bytes is None)
        assert client.wait_for(master.end, 20)
        assert client.failure is None
        assert client.state().reconnects >= 5
        assert client.state().connection is ConnectionState.FOLLOWING
    assert log_bytes(root_of(slave))[: len(written_log)] == written_log


def test_waits_for_a_master_that_is_not_there(slave, master):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with HAClient(slave, f"127.0.0.1:{port}") as client:
        assert "cannot connect to" in error_of(client)
        assert f"127.0.0.1:{port}" in error_of(client)
        wait_until(lambda: client.state().reconnects > 1)
        assert client.failure is None
        assert client.state().connection is ConnectionState.NOT_CONNECTED


def test_a_silent_master_is_left(tmp_path):
    config = store_config(tmp_path, broker_role="SLAVE", ha_housekeeping_interval=300)
    silent = Scripted(lambda master, sock: master._read_reports(sock))
    with MessageStore(config) as slave, silent, HAClient(slave, silent.address) as client:
        assert "was silent for 0.3 s (haHousekeepingInterval)" in error_of(client)
        silent.wait_until(lambda: silent.accepted > 1)
        assert client.failure is None


GARBAGE = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    bytes(4096),
    b"\xff" * 4096,
    HEADER.pack(0, -1),
    HEADER.pack(0, 2**31 - 1),
    HEADER.pack(-5, 0),
    HEADER.pack(0, 100) + bytes(50),
    HEADER.pack(0, 10) + bytes(10) + HEADER.pack(11, 5) + bytes(5),
    b"",
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_ends_the_connection_only(slave, garbage):
    def speak(master, sock):
        master._exactly(sock, REPORT.size)
        sock.sendall(garbage)

    with Scripted(speak) as master, HAClient(slave, master.address) as client:
        assert master.address in error_of(client)
        master.wait_until(lambda: master.accepted > 2)
        assert client.failure is None
    assert slave.max_phy_offset == 0


def test_a_master_with_other_segments(slave):
    def speak(master, sock):
        master._exactly(sock, REPORT.size)
        sock.sendall(HEADER.pack(1000, 4) + b"abcd")
        master._read_reports(sock)

    with Scripted(speak) as master, HAClient(slave, master.address) as client:
        wait_until(lambda: client.failure is not None)
        assert "mappedFileSizeCommitLog is 65536" in str(client.failure)


def test_longer_segments_of_the_master_are_seen_by_their_records(tmp_path, written_log):
    """The first segments fit: the master's are four times as long."""
    config = store_config(tmp_path, broker_role="SLAVE", mapped_file_size_commit_log=SEGMENT // 4)
    slave = MessageStore(config)
    master = RawMaster(written_log, SEGMENT // 4)
    with slave, master, HAClient(slave, master.address, first_offset=0) as client:
        wait_until(lambda: client.failure is not None)
        assert "mappedFileSizeCommitLog" in str(client.failure)
        assert master.address in str(client.failure)


def test_a_disk_that_is_full_is_tried_again(slave, master, monkeypatch):
    append, failures = slave.append_to_commit_log, []

    def full(offset, data):
        if len(failures) < 2:
            failures.append(offset)
            raise StoreWriteError("No space left on device", "/store/commitlog/0")
        append(offset, data)

    monkeypatch.setattr(slave, "append_to_commit_log", full)
    with HAClient(slave, master.address) as client:
        assert "No space left on device" in error_of(client)
        assert client.wait_for(master.end, 10)
        assert client.failure is None
        assert client.state().error == ""


def test_a_store_that_is_closed_ends_it(slave, master):
    with HAClient(slave, master.address) as client:
        assert client.wait_for(master.end, 10)
        slave.shutdown()
        master.drop()
        wait_until(lambda: client.failure is not None)
        assert "not open" in str(client.failure)
        assert client.state().max_offset == master.end
        assert not client.wait_for(master.end + 1, 5)


def test_tells_of_each_connection(slave, master, caplog):
    told = []

    def tell(address):
        told.append((address, threading.current_thread().name))
        raise RuntimeError("no metadata")

    with HAClient(slave, master.address, on_connected=tell) as client:
        assert client.wait_for(master.end, 10)
        master.drop()
        wait_until(lambda: len(told) == 2)
        assert client.failure is None
    assert {address for address, _ in told} == {master.address}
    assert not any(thread == "ha-client" for _, thread in told)
    assert "no metadata" in caplog.text


def test_stops_while_it_catches_up(tmp_path, written_log):
    config = store_config(tmp_path, broker_role="SLAVE")
    with RawMaster(written_log, SEGMENT, most=200) as master:
        for turn in range(1, 6):
            with MessageStore(config) as slave:
                client = HAClient(slave, master.address, first_offset=0)
                client.start()
                client.start()
                least = turn * 30_000
                wait_until(lambda least=least: slave.max_phy_offset > least)
                client.shutdown()
                end = slave.max_phy_offset
                client.shutdown()
                assert client.state().connection is ConnectionState.STOPPED
                assert slave.max_phy_offset == end
            assert log_bytes(tmp_path)[:least] == written_log[:least]
            assert_clean(tmp_path, config)


def test_may_be_started_again(slave, master):
    client = HAClient(slave, master.address)
    for _ in range(2):
        with client:
            assert client.wait_for(master.end, 10)
            wait_until(lambda: client.state().connection is ConnectionState.FOLLOWING)


def test_a_snapshot_reads_what_is_followed(slave, written_log):
    half, counts = len(written_log) // 2, []
    master = RawMaster(written_log[:half], SEGMENT)
    with master, HAClient(slave, master.address, first_offset=0) as client:
        for end in (half - 2000, len(written_log)):  # the half ends within a record
            assert client.wait_for(end, 10)
            with StoreSnapshot(root_of(slave), slave.config) as view:
                counts.append(view.get_max_offset_in_queue("T0", 0))
            master.append(written_log[master.end :])
    assert 0 < counts[0] < counts[1]


def test_where_it_is(slave, written_log):
    """A second connection learns the master's end, while catching up takes longer."""
    gate = threading.Event()

    class Slow(RawMaster):
        def serve(self, sock):
            if self.accepted == 1:
                request = REPORT.unpack(self._exactly(sock, REPORT.size))[0]
                sock.sendall(HEADER.pack(request, 32768) + self.log[request : request + 32768])
                gate.wait(20)
            else:
                super().serve(sock)

    master = Slow(written_log, SEGMENT)
    with master, HAClient(slave, master.address, first_offset=0) as client:
        last = len(written_log) // SEGMENT * SEGMENT
        wait_until(lambda: (client.state().master_offset or 0) > last)
        state = client.state()
        assert not state.is_caught_up
        assert state.lag_bytes == state.master_offset - state.max_offset
        assert state.bytes_received == 32768
        gate.set()
        assert client.wait_for(master.end, 10)
        wait_until(lambda: client.state().is_caught_up)
        assert client.state().lag_bytes == 0
        assert client.state().lag_ms == 0


def test_a_probe_of_somebody_else(slave):
    loop = EventLoopThread("probing")
    loop.start()
    try:
        with Scripted(lambda master, sock: sock.sendall(b"HTTP/1.1 400 Bad")) as master:
            asked = loop.submit(probe(master.address, 0, 5.0))
            with pytest.raises(ConnectionLostError, match="not send frames of a commit log"):
                asked.result(10)
        with Scripted(lambda master, sock: master._read_reports(sock)) as master:
            asked = loop.submit(probe(master.address, 0, 0.2))
            with pytest.raises(ConnectionLostError, match="neither data nor heartbeats"):
                asked.result(10)
    finally:
        loop.shutdown()


def test_a_master_that_waits_is_told_at_once(tmp_path, monkeypatch):
    """Frames of the largest size, each sent when the previous one is on the slave's disk."""
    monkeypatch.setattr("store_core.ha.master_connection._FLUSH_EVERY_S", 5)  # no waits
    root, count = tmp_path / "m", 40
    with MessageStore(store_config(root)) as store:
        for _ in range(count):
            store.put_message(Message(topic="T", queue_id=0, body=b"x" * 300))
        end = store.max_phy_offset
    log, size = log_bytes(root)[:end], end // count
    done = threading.Event()

    def in_step(master, sock):
        master._exactly(sock, REPORT.size)
        for at in range(0, end, size):
            sock.sendall(HEADER.pack(at, size) + log[at : at + size])
            while REPORT.unpack(master._exactly(sock, REPORT.size))[0] < at + size:
                pass
        done.set()

    config = store_config(tmp_path / "s", broker_role="SLAVE", ha_transfer_batch_size=size)
    slave, master = MessageStore(config), Scripted(in_step)
    with slave, master, HAClient(slave, master.address):
        assert done.wait(60)


@pytest.mark.parametrize("kept", [1 << 15, 1 << 18], ids=["of the first segment", "all"])
def test_a_network_that_closes_connections_at_once_is_no_verdict(tmp_path, kept):
    """With a copy of all: the master's first frame does not reach up to where it is compared.

    With a copy of a part of the first segment: the master's last segment begins after it.
    """
    size = min(2 * kept, 1 << 18)
    with MessageStore(store_config(tmp_path / "m", mapped_file_size_commit_log=size)) as store:
        put(store, 200)
        end = store.max_phy_offset
        assert (1 << 17) < end < (1 << 18)
    log = log_bytes(tmp_path / "m")[:end]

    class Closing(RawMaster):
        def serve(self, sock):
            if len(self.requests) < 6 and self._peeked(sock):
                self._note(self.requests, REPORT.unpack(self._exactly(sock, REPORT.size))[0])
            else:
                super().serve(sock)

        @staticmethod
        def _peeked(sock):
            return REPORT.unpack(sock.recv(REPORT.size, socket.MSG_PEEK))[0] > 0

    config = store_config(tmp_path / "s", mapped_file_size_commit_log=size, broker_role="SLAVE")
    with MessageStore(config) as slave, Closing(log, size) as master:
        slave.append_to_commit_log(0, log[:kept])
        with HAClient(slave, master.address) as client:
            wait_until(lambda: client.state().is_caught_up or client.failure, 30)
            assert client.failure is None
            assert slave.max_phy_offset == end
        assert sum(request > 0 for request in master.requests[:6]) >= 3


def test_the_end_of_a_segment_is_not_the_masters_end(slave, written_log):
    """The frame is short because frames do not cross segments."""
    more, is_told = threading.Event(), threading.Event()

    def speak(master, sock):
        master._exactly(sock, REPORT.size)
        for at, stop in ((0, 30_000), (30_000, 60_000), (60_000, SEGMENT)):
            sock.sendall(HEADER.pack(at, stop - at) + written_log[at:stop])
        assert more.wait(20)
        sock.sendall(HEADER.pack(SEGMENT, 0))
        is_told.set()
        master._read_reports(sock)

    with Scripted(speak) as master, HAClient(slave, master.address, ack="appended") as client:
        wait_until(lambda: client.state().acked_offset == SEGMENT)
        assert not client.state().is_caught_up
        assert client.state().lag_ms != 0
        more.set()
        assert is_told.wait(10)
        wait_until(lambda: client.state().is_caught_up)


def test_a_master_that_has_less_than_it_had(slave, written_log):
    """The master's end is known only for one connection."""
    with RawMaster(written_log, SEGMENT) as master, HAClient(slave, master.address) as client:
        wait_until(lambda: client.state().is_caught_up)
        client._progress.master_offset = 1 << 40  # as if a second connection reported it
        assert client.state().lag_bytes > 0
        master.drop()
        wait_until(lambda: client.state().reconnects > 0 and client.state().is_caught_up)
        assert client.state().lag_bytes == 0


def test_a_store_has_one_client(slave, master):
    other = HAClient(slave, master.address)
    with HAClient(slave, master.address) as client:
        with pytest.raises(HAError, match="another client already follows") as caught:
            other.start()
        assert master.address in str(caught.value)
        assert client.wait_for(master.end, 10)
    with other:
        assert other.wait_for(master.end, 10)
        wait_until(lambda: other.state().connection is ConnectionState.FOLLOWING)


def test_says_that_queues_cannot_be_written(tmp_path, master):
    full = threading.Event()
    full.set()

    def dispatch(frames):
        if full.is_set():
            raise StoreWriteError("No space left on device", "/store/consumequeue/T/0")

    slave = MessageStore(store_config(tmp_path, broker_role="SLAVE"), dispatchers=[dispatch])
    with slave, HAClient(slave, master.address) as client:
        wait_until(lambda: client.state().connection is ConnectionState.FOLLOWING)
        assert "not dispatched: /store/consumequeue/T/0: No space left" in error_of(client)
        assert not client.wait_for(master.end, 0.1)
        full.clear()
        assert client.wait_for(master.end, 10)
        wait_until(lambda: not client.state().error)
