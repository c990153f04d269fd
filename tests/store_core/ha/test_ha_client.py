# SPDX-License-Identifier: Apache-2.0
"""A slave follows scripted masters."""

from __future__ import annotations

import time

import pytest

from store_core.errors import HAError, StoreConfigError
from store_core.ha.follow_state import ConnectionState
from store_core.ha.ha_client import HAClient
from store_core.message import Message
from store_core.message_store import MessageStore
from tests.store_core.ha.raw_master import HEADER, REPORT, RawMaster
from tests.store_core.ha.stores import (
    SEGMENT,
    assert_clean,
    log_bytes,
    put,
    record_ends,
    root_of,
    store_config,
    wait_until,
)


def fill(store, log, stop):
    """Put the beginning of a log into a slave."""
    for at in range(0, stop, SEGMENT):
        store.append_to_commit_log(at, log[at : min(at + SEGMENT, stop)])


def own_log(store):
    return log_bytes(root_of(store))


def test_an_empty_slave_gets_the_last_segment(slave, master, written_log):
    last = len(written_log) // SEGMENT * SEGMENT
    with HAClient(slave, master.address) as client:
        assert client.wait_for(master.end, 10)
        assert slave.min_phy_offset == last
        wait_until(lambda: client.state().is_caught_up)
        master.wait_until(lambda: master.end in master.reports)
    assert master.requests[0] == 0
    assert own_log(slave)[: len(written_log) - last] == written_log[last:]


def test_goes_on_at_its_end(slave, master, written_log):
    end = len(written_log) // 2 + 11
    fill(slave, written_log, end)
    with HAClient(slave, master.address) as client:
        assert client.wait_for(master.end, 10)
        state = client.state()
        assert state.max_offset == master.end
        assert state.lag_bytes == 0
        assert state.error == ""
        assert state.reconnects == 0
        assert client.failure is None
    assert client.state().connection is ConnectionState.STOPPED
    assert own_log(slave)[: master.end] == written_log
    start = end - end % SEGMENT
    assert master.requests[0] == max(start, end - 65536, 1)


def test_follows_what_is_appended(slave, written_log):
    half = len(written_log) // 2
    with RawMaster(written_log[:half], SEGMENT) as master:
        fill(slave, written_log, half)
        with HAClient(slave, master.address) as client:
            for stop in range(half + 1000, len(written_log), 7777):
                master.append(written_log[master.end : stop])
                assert client.wait_for(stop - 2000, 10)
            master.append(written_log[master.end :])
            assert client.wait_for(len(written_log), 10)
    assert own_log(slave)[: len(written_log)] == written_log


@pytest.mark.parametrize("size", [1, 5, 11, 12, 13, 1000])
def test_bytes_come_in_any_pieces(slave, written_log, size):
    def pieces(data):
        return [data[at : at + size] for at in range(0, len(data), size)]

    stop = 9000 if size < 100 else len(written_log)
    fill(slave, written_log, 3000)
    master = RawMaster(written_log[:stop], SEGMENT, most=777, pieces=pieces)
    with master, HAClient(slave, master.address) as client:
        wait_until(lambda: client.state().max_offset == stop, 20)
    assert own_log(slave)[:stop] == written_log[:stop]


def ends(client, seconds=20):
    """Wait until a client gives up; return the reason."""
    wait_until(lambda: client.failure is not None, seconds)
    assert client.state().connection is ConnectionState.FAILED
    assert client.state().error == str(client.failure)
    return str(client.failure)


@pytest.fixture(scope="module")
def other_log(tmp_path_factory, written_log):
    """A log of another master, after the same beginning of 100 records."""
    root = tmp_path_factory.mktemp("other") / "store"
    config = store_config(root, broker_role="SLAVE")
    with MessageStore(config) as store:
        fill(store, written_log, 200_000)
    with MessageStore(store_config(root)) as store:
        put(store, 150, 1000)
        end = store.max_phy_offset
    return log_bytes(root)[:end]


def shared(one, other):
    """Number of equal bytes at the beginnings of two logs."""
    return next(at for at in range(len(one)) if one[at] != other[at])


def test_another_master_is_refused(slave, master, other_log, written_log):
    fill(slave, other_log, len(other_log))
    end = len(other_log)
    with HAClient(slave, master.address) as client:
        text = ends(client)
        assert not client.wait_for(2**40, 5)
    assert f"{master.address} has different bytes at offset" in text
    assert "--cut" in text
    assert own_log(slave)[:end] == other_log
    assert slave.max_phy_offset == end
    assert len(master.requests) == 1


def test_a_copy_that_is_ahead_is_refused(slave, written_log):
    fill(slave, written_log, len(written_log))
    with RawMaster(written_log[:-5000], SEGMENT) as master:
        with HAClient(slave, master.address) as client:
            text = ends(client)
        assert f"it ends at {len(written_log)}" in text
        assert f"it ends at {master.end}" in text
        assert "ahead of" in text
    assert own_log(slave)[: len(written_log)] == written_log


def test_a_copy_that_is_far_ahead_is_refused(slave, written_log):
    fill(slave, written_log, len(written_log))
    master = RawMaster(written_log[:70_000], SEGMENT)
    with master, HAClient(slave, master.address) as client:
        assert "it has nothing at" in ends(client)


def test_a_master_without_the_offset(slave, written_log):
    fill(slave, written_log, 3000)
    begin = 2 * SEGMENT
    master = RawMaster(written_log[begin:], SEGMENT, begin=begin)
    with master, HAClient(slave, master.address, cut=True) as client:
        text = ends(client)
    assert "no longer has offset 1" in text
    assert "start with an empty directory" in text.lower()


def test_flow_control_is_no_divergence(slave, written_log):
    """Empty frames come as fast as possible, for longer than a heartbeat; then bytes."""

    class Controlled(RawMaster):
        def serve(self, sock):
            request = REPORT.unpack(self._exactly(sock, REPORT.size))[0]
            self._note(self.requests, request)
            begin = time.monotonic()
            while time.monotonic() < begin + 1.1:
                sock.sendall(HEADER.pack(request, 0) * 1000)
            for at in range(request, self.end, 1000):
                data = self.log[at : at + 1000]
                stop = at - at % SEGMENT + SEGMENT - at
                for part, offset in ((data[:stop], at), (data[stop:], at + stop)):
                    if part:
                        sock.sendall(HEADER.pack(offset, len(part)) + part)
            self._read_reports(sock)

    fill(slave, written_log, 100_000)
    with Controlled(written_log, SEGMENT) as master, HAClient(slave, master.address) as client:
        assert client.wait_for(master.end, 10)
        assert client.state().reconnects == 0
    assert own_log(slave)[: len(written_log)] == written_log


@pytest.mark.parametrize("ahead", [True, False])
def test_cut_goes_on_with_the_master(tmp_path, written_log, other_log, ahead):
    config = store_config(tmp_path / "slave", broker_role="SLAVE")
    own = written_log if ahead else other_log
    ends = record_ends(written_log)
    served = written_log[: ends[-40]] if ahead else written_log
    same = shared(other_log, written_log) if not ahead else len(served)
    with MessageStore(config) as slave, RawMaster(served, SEGMENT) as master:
        fill(slave, own, len(own))
        assert slave.wait_for_dispatch(10)
        with HAClient(slave, master.address, cut=True) as client:
            wait_until(lambda: client.failure or client.state().is_caught_up, 30)
            assert client.failure is None
            wait_until(lambda: slave.max_phy_offset == master.end)
        end = slave.max_phy_offset
        assert own_log(slave)[:end] == served
        assert slave.query_message("T1", "k7", 10, 0, 2**62).messages
    (kept,) = (tmp_path / "slave" / "_cut").iterdir()
    cut_at = int(kept.name.split("-")[0])
    assert same - 2000 < cut_at <= same
    for path in kept.iterdir():  # zeros at the end are left out
        found = path.read_bytes()
        stop = int(path.name) // SEGMENT * SEGMENT + SEGMENT
        whole = own[int(path.name) : stop]
        assert whole.startswith(found)
        assert not any(whole[len(found) :])
    assert_clean(tmp_path / "slave", config)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_blank_record_that_a_killed_master_lost_is_cut(tmp_path, written_log, after):
    """It may have put a message in its place since; ``cut`` is not asked for."""
    blank = int(record_ends(written_log[:SEGMENT])[-2])
    assert written_log[blank + 4 : blank + 8] == b"\xcb\xd4\x31\x94"
    with MessageStore(store_config(tmp_path / "m", broker_role="SLAVE")) as store:
        fill(store, written_log, blank)
    with MessageStore(store_config(tmp_path / "m")) as store:
        for _ in range(after):
            store.put_message(Message(topic="T0", queue_id=0, body=b"x"))
        end = store.max_phy_offset
    served = log_bytes(tmp_path / "m")[:end]
    config = store_config(tmp_path / "slave", broker_role="SLAVE")
    with MessageStore(config) as slave, RawMaster(served, SEGMENT) as master:
        fill(slave, written_log, SEGMENT)
        with HAClient(slave, master.address) as client:
            wait_until(lambda: client.failure or client.state().is_caught_up, 30)
            assert client.failure is None
            wait_until(lambda: slave.max_phy_offset == end)
            assert client.wait_for(end, 10)
        assert own_log(slave)[:end] == served
    assert_clean(tmp_path / "slave", config)


def test_a_log_with_nothing_in_common_is_not_cut(slave, tmp_path, master):
    with MessageStore(store_config(tmp_path / "other")) as other:
        put(other, 100, 5000)
        end = other.max_phy_offset
    log = log_bytes(tmp_path / "other")[:end]
    fill(slave, log, end)
    with HAClient(slave, master.address, cut=True) as client:
        assert "nothing in common" in ends(client)
    assert slave.max_phy_offset == end
    assert own_log(slave)[:end] == log


@pytest.mark.parametrize("size", [0, 1, 3])
def test_from_the_first_byte(slave, written_log, size):
    first = size * SEGMENT
    master = RawMaster(written_log, SEGMENT, most=50)
    with master, HAClient(slave, master.address, first_offset=first) as client:
        assert client.wait_for(master.end, 10)
        assert master.requests[0] == max(first, 1)
    assert slave.min_phy_offset == first
    assert own_log(slave)[: len(written_log) - first] == written_log[first:]


@pytest.mark.parametrize("begin", [0, 1, 2, 4])
def test_from_the_earliest_segment(slave, written_log, begin):
    first = begin * SEGMENT
    master = RawMaster(written_log[first:], SEGMENT, begin=first)
    with master, HAClient(slave, master.address, first_offset="earliest") as client:
        assert client.wait_for(master.end, 20)
    assert slave.min_phy_offset == first
    assert own_log(slave)[: len(written_log) - first] == written_log[first:]


def test_a_first_segment_that_is_gone(slave, written_log):
    first = 2 * SEGMENT
    master = RawMaster(written_log[first:], SEGMENT, begin=first)
    with master, HAClient(slave, master.address, first_offset=0) as client:
        assert "no longer has offset 0" in ends(client)


def test_settings_that_cannot_be(slave, master):
    with pytest.raises(StoreConfigError, match="HOST:PORT"):
        HAClient(slave, "localhost")
    with pytest.raises(StoreConfigError, match="ack='soon'"):
        HAClient(slave, master.address, ack="soon")
    with pytest.raises(StoreConfigError, match="first_offset='newest'"):
        HAClient(slave, master.address, first_offset="newest")
    with pytest.raises(StoreConfigError, match="multiples of 65536"):
        HAClient(slave, master.address, first_offset=77).start()


def test_only_a_slave_follows(tmp_path, master):
    store = MessageStore(store_config(tmp_path / "store"))
    with store, pytest.raises(HAError, match="brokerRole=SLAVE"):
        HAClient(store, master.address).start()
