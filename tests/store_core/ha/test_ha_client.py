"""A slave follows masters that are made of bytes."""

from __future__ import annotations

import pytest

from store_core.ha.follow_state import ConnectionState
from store_core.ha.ha_client import HAClient
from tests.store_core.ha.raw_master import RawMaster
from tests.store_core.ha.stores import SEGMENT, log_bytes, root_of, wait_until


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
