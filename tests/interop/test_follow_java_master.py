"""What RocketMQ's master answers where it lacks something, and when it has nothing new."""

from __future__ import annotations

import shutil
import time

import pytest

from store_core.ha.ha_client import HAClient
from store_core.message_store import MessageStore
from tests.interop.java_cluster import RELEASES, free_port
from tests.interop.java_replica import JavaReplica
from tests.store_core.ha.stores import SEGMENT, assert_clean, log_bytes, store_config, wait_until

pytestmark = pytest.mark.interop

HEARTBEAT_MS = 500
_SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 2000,
    "haSendHeartbeatInterval": HEARTBEAT_MS,
}


@pytest.fixture(params=RELEASES)
def master(request, tmp_path):
    with JavaReplica(tmp_path / "process", request.param) as made:
        made.port = free_port()
        made.address = f"127.0.0.1:{made.port}"
        made.root = tmp_path / "master"
        made.open_master(made.root, made.port, **_SETTINGS)
        yield made


def slave_config(tmp_path):
    return store_config(
        tmp_path / "slave", broker_role="SLAVE", ha_send_heartbeat_interval=HEARTBEAT_MS
    )


def follow(config, master, end, **options):
    with MessageStore(config) as slave, HAClient(slave, master.address, **options) as client:
        assert client.wait_for(end, 30), client.state()
        return slave.min_phy_offset


@pytest.mark.parametrize("first", [0, "earliest"])
def test_a_whole_copy(tmp_path, master, first):
    end = master.put(600, 1)["max_phy_offset"]
    assert end > 2 * SEGMENT
    config = slave_config(tmp_path)
    assert follow(config, master, end, first_offset=first) == 0
    assert log_bytes(tmp_path / "slave")[:end] == log_bytes(master.root)[:end]
    assert_clean(tmp_path / "slave", config)


def test_the_first_segments_are_gone(tmp_path, master):
    end = master.put(600, 1)["max_phy_offset"]
    master.stop()
    for path in sorted((master.root / "commitlog").iterdir())[:1]:
        path.unlink()
    master.open_master(master.root, master.port, **_SETTINGS)
    config = slave_config(tmp_path)
    with MessageStore(config) as slave, HAClient(slave, master.address, first_offset=0) as client:
        wait_until(lambda: client.failure is not None, 30)
        assert "no longer has offset 0" in str(client.failure)
    assert follow(config, master, end, first_offset="earliest") == SEGMENT


def test_an_idle_master_is_no_alarm(tmp_path, master):
    end = master.put(100, 1)["max_phy_offset"]
    config = slave_config(tmp_path)
    follow(config, master, end, first_offset=0)
    with MessageStore(config) as slave, HAClient(slave, master.address) as client:
        begin = time.monotonic()
        wait_until(lambda: time.monotonic() > begin + 4 * HEARTBEAT_MS / 1000)
        assert client.state().is_caught_up
        assert client.state().reconnects == 0
        assert client.failure is None


def test_flow_control_is_no_alarm(tmp_path, master):
    master.stop()
    limits = {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": 40_000}
    master.open_master(master.root, master.port, **_SETTINGS, **limits)
    end = master.put(300, 1)["max_phy_offset"]
    config = slave_config(tmp_path)
    follow(config, master, end, first_offset=0)
    with MessageStore(config) as slave, HAClient(slave, master.address) as client:
        end = master.put(100, 2)["max_phy_offset"]
        assert client.wait_for(end, 30)
        assert client.state().reconnects == 0


def test_cut_after_the_master_lost_its_end(tmp_path, master):
    kept = master.put(300, 1)["max_phy_offset"]
    master.stop()
    shutil.copytree(master.root, tmp_path / "before")
    master.open_master(master.root, master.port, **_SETTINGS)
    end = master.put(200, 2)["max_phy_offset"]
    config = slave_config(tmp_path)
    follow(config, master, end, first_offset=0)
    master.stop()
    shutil.rmtree(master.root)
    (tmp_path / "before").rename(master.root)
    master.open_master(master.root, master.port, **_SETTINGS)
    assert master.state()["max_phy_offset"] == kept
    with MessageStore(config) as slave:
        with HAClient(slave, master.address) as client:
            wait_until(lambda: client.failure is not None, 30)
            assert "ahead of" in str(client.failure)
        with HAClient(slave, master.address, cut=True) as client:
            wait_until(lambda: client.failure or client.state().is_caught_up, 30)
            end = master.put(100, 3)["max_phy_offset"]
            assert client.wait_for(end, 30), client.state()
    assert log_bytes(tmp_path / "slave")[:end] == log_bytes(master.root)[:end]
    assert_clean(tmp_path / "slave", config)
