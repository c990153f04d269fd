"""A master against sockets that behave as slaves do, or as they should not."""

from __future__ import annotations

import pytest

from store_core.ha.ha_service import HAService
from store_core.message_store import MessageStore
from tests.store_core.ha.raw_slave import (
    SEGMENT,
    RawSlave,
    log_bytes,
    put,
    store_config,
)


@pytest.fixture
def master(tmp_path):
    with MessageStore(store_config(tmp_path / "master")) as store:
        put(store, 30)
        yield store


@pytest.fixture
def service(master):
    with HAService(master, port=0) as service:
        yield service


def frames_of(start, stop, batch=700):
    found = []
    while start < stop:
        size = min(batch, stop - start, SEGMENT - start % SEGMENT)
        found.append((start, size))
        start += size
    return found


@pytest.mark.parametrize("start", [1, 100, 700, SEGMENT - 1, SEGMENT, SEGMENT + 5])
def test_transfer_begins_where_the_first_report_says(master, service, start):
    end = master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(start)
        assert slave.follow(end) == frames_of(start, end)
        assert slave.body == log_bytes(master, start, end)


def test_an_empty_slave_gets_the_last_segment(master, service):
    end = master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(0)
        assert slave.follow(end) == frames_of(end - end % SEGMENT, end)


def test_what_is_put_later_follows(master, service):
    begin = end = master.max_phy_offset
    with RawSlave(service.address) as slave:
        slave.report(begin)
        for _ in range(40):
            end = put(master, 1)
            slave.follow(end)
        assert slave.body == log_bytes(master, begin, end)
