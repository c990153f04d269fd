"""A slave stands still within a record: nobody may take its beginning for a whole one."""

from __future__ import annotations

import shutil

import pytest

from store_core.ha.ha_client import HAClient
from store_core.message import Message
from store_core.message_store import MessageStore
from tests.store_core.ha.raw_master import RawMaster
from tests.store_core.ha.stores import (
    SEGMENT,
    assert_clean,
    log_bytes,
    store_config,
    wait_until,
)


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A log of three messages of which most bytes are properties, and where they end."""
    root, ends = tmp_path_factory.mktemp("three") / "store", []
    with MessageStore(store_config(root)) as store:
        for number in range(3):
            properties = {"KEYS": f"k{number}", "ORIGIN": "o" * 60}
            store.put_message(Message(topic="T0", queue_id=0, body=b"b", properties=properties))
            ends.append(store.max_phy_offset)
    return log_bytes(root)[: ends[-1]], ends


@pytest.mark.parametrize("lacking", [1, 2, 30, 65, 80, 110, 150])
def test_a_kill_within_a_record(tmp_path, three, lacking):
    """The files as they are then: what a kill leaves."""
    log, ends = three
    config = store_config(tmp_path / "s", broker_role="SLAVE")
    master = RawMaster(log[:-lacking], SEGMENT, most=60)
    slave = MessageStore(config)
    with master, slave, HAClient(slave, master.address, first_offset=0) as client:
        wait_until(lambda: client.state().bytes_received == len(log) - lacking - 1)
        assert client.wait_for(ends[1], 10)
        shutil.copytree(tmp_path / "s", tmp_path / "killed")
    killed = store_config(tmp_path / "killed", broker_role="SLAVE")
    with MessageStore(killed) as slave, RawMaster(log, SEGMENT) as master:
        assert slave.max_phy_offset == ends[1]
        with HAClient(slave, master.address) as client:
            assert client.wait_for(ends[2], 10), client.state()
        assert log_bytes(tmp_path / "killed")[: len(log)] == log
    assert_clean(tmp_path / "killed", killed)
    assert not (tmp_path / "killed" / "_cut").exists()
