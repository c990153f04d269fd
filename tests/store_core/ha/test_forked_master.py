"""A child that was forked must not touch, nor keep open, what its parent serves slaves with."""

from __future__ import annotations

import os
import warnings

import pytest

from store_core.errors import StoreClosedError
from store_core.ha.ha_service import HAService
from tests.store_core.ha.raw_slave import AckingSlave, RawSlave, put, still_serves, wait_until
from tests.store_core.test_message_store_fork import in_child


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
