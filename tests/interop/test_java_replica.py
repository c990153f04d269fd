"""The judge of replication by itself: RocketMQ follows RocketMQ, both releases both ways."""

from __future__ import annotations

import pytest

from tests.interop.java_cluster import RELEASES, free_port
from tests.interop.java_replica import JavaReplica
from tests.interop.replica import read_journal

pytestmark = pytest.mark.interop
_WAIT_SECONDS = 30


@pytest.mark.parametrize("release", RELEASES)
def test_a_slave_follows_its_master_over_restarts_and_a_kill(tmp_path, release):
    other = next(each for each in RELEASES if each != release)
    port, slaves_port = free_port(), free_port()
    address, journal = f"127.0.0.1:{port}", tmp_path / "journal"
    master_root, slave_root = tmp_path / "master-store", tmp_path / "slave-store"
    with JavaReplica(tmp_path / "master", release) as master:
        master.open_master(master_root, port)
        with JavaReplica(tmp_path / "slave", other) as slave:
            slave.open_slave(slave_root, address, slaves_port)
            # An empty slave begins at the last segment that there is when it comes.
            first = master.put(1, 0, journal=journal)
            assert slave.wait(first["max_phy_offset"], _WAIT_SECONDS)["event"] == "reached"
            put = master.put(299, 1, journal=journal)
            assert put["statuses"] == {"PUT_OK": 300}
            assert slave.wait(put["max_phy_offset"], _WAIT_SECONDS)["event"] == "reached"
            slave.stop()
            put = master.put(300, 2, threads=2, journal=journal)
            slave.open_slave(slave_root, address, slaves_port)
            assert slave.wait(put["max_phy_offset"], _WAIT_SECONDS)["event"] == "reached"
            slave.kill()
            assert not slave.is_alive
        put = master.put(300, 3, journal=journal)
        with JavaReplica(tmp_path / "slave-again", other) as slave:
            slave.open_slave(slave_root, address, slaves_port)
            assert slave.wait(put["max_phy_offset"], _WAIT_SECONDS)["event"] == "reached"
            slave.stop()
        master.stop()
    for path in (master_root / "commitlog").iterdir():
        assert (slave_root / "commitlog" / path.name).read_bytes() == path.read_bytes()
    rows = read_journal(journal)
    assert len({key for key, _, _ in rows}) == 900
    assert max(offset + size for _, offset, size in rows) == put["max_phy_offset"]


def test_a_synchronous_master_says_which_messages_no_slave_has(tmp_path):
    with JavaReplica(tmp_path / "master", "5.3.3") as master:
        settings = {"inSyncReplicas": 2, "slaveTimeout": 100}
        master.open_master(tmp_path / "store", free_port(), "SYNC_MASTER", **settings)
        put = master.put(3, 1, journal=tmp_path / "journal")
    assert put["statuses"] == {"FLUSH_SLAVE_TIMEOUT": 3}
    assert read_journal(tmp_path / "journal") == []
