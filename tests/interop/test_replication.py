# SPDX-License-Identifier: Apache-2.0
"""RocketMQ follows this project's store, this project follows RocketMQ's, and its own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from store_core.ha.ha_client import HAClient
from store_core.message_store import MessageStore
from tests.interop import java_cluster, java_oracle
from tests.interop.java_cluster import RELEASES, Broker, free_port
from tests.interop.replica import JavaReplica, Replica, read_journal
from tests.interop.replication_rounds import (
    DIRECTIONS,
    OURS,
    SETTINGS,
    Case,
    KilledMaster,
    Processes,
    Round,
    Side,
    compare_stores,
    log_bytes,
    opened,
)
from tests.store_core.ha.stores import SEGMENT, assert_clean, store_config, wait_until
from tests.store_core.ha.stores import log_bytes as whole_log

pytestmark = pytest.mark.interop

ROUNDS = 20
# The tests mostly wait.
_AT_ONCE = 3
KILLS = 2
"""Kills of a synchronous master, in each direction."""
_WAIT_SECONDS = 60
_MASTERS = (*RELEASES, OURS)
_READ_SECONDS = 30
HEARTBEAT_MS = 500
_SETTINGS = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": 2000,
    "haSendHeartbeatInterval": HEARTBEAT_MS,
}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    for release in RELEASES:
        java_cluster.build(release)
    for api in java_oracle.APIS:
        java_oracle.build(api)
    made = Processes(tmp_path_factory.mktemp("processes"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def rounds(
    processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Future[Any]]]:
    directory = tmp_path_factory.mktemp("rounds")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {
            seed: pool.submit(Round(Case.of_seed(seed), directory / str(seed), processes).play)
            for seed in range(ROUNDS)
        }


@pytest.mark.parametrize("seed", range(ROUNDS), ids=lambda seed: str(Case.of_seed(seed)))
def test_both_are_equal_in_the_end(rounds, seed):
    assert rounds[seed].result()


@pytest.mark.parametrize("direction", DIRECTIONS, ids=" to ".join)
def test_a_killed_synchronous_master_loses_nothing_that_it_acknowledged(
    tmp_path, processes, direction
):
    with KilledMaster(tmp_path / "stores", processes, direction, seed=1) as killed:
        for _ in range(KILLS):
            assert killed.kill() > 0


class Pair:
    """A master of any kind and a slave of ours."""

    def __init__(self, directory: Path, processes: Processes, kind: str, stack: ExitStack) -> None:
        self._processes, self._stack = processes, stack
        self.directory = directory
        self.master = Side(kind, directory / "master")
        self.slave = Side(OURS, directory / "slave")

    def start(self, side: Side) -> Replica:
        """Return a process for one side, which ends with the test."""
        if side.process is None or not side.process.is_alive:
            side.process = self._stack.enter_context(self._processes.take(side.kind))
        return side.process

    def open_master(self) -> Replica:
        master = self.start(self.master)
        master.open_master(self.master.root, self.master.port, **SETTINGS)
        return master

    def open_slave(self, **settings: object) -> Replica:
        slave = self.start(self.slave)
        address = f"127.0.0.1:{self.master.port}"
        slave.open_slave(self.slave.root, address, self.slave.port, **SETTINGS, **settings)
        return slave

    def follow(self, end: int, **settings: object) -> None:
        """Let the slave follow up to an offset, and stop it."""
        slave = self.open_slave(**settings)
        deadline = time.monotonic() + _WAIT_SECONDS
        while (state := slave.state())["max_phy_offset"] != end:  # it may have to be cut first
            assert time.monotonic() < deadline, state
            time.sleep(0.02)
        assert slave.wait(end, _WAIT_SECONDS)["event"] == "reached"
        slave.stop()


@pytest.fixture(params=_MASTERS)
def pair(request, tmp_path, processes):
    with ExitStack() as stack:
        yield Pair(tmp_path, processes, request.param, stack)


def test_a_whole_copy_of_a_master_with_many_segments(pair):
    master = pair.open_master()
    end = master.put(1_000, 1)["max_phy_offset"]
    assert end > 3 * SETTINGS["mappedFileSizeCommitLog"]
    pair.follow(end, firstOffset=0)
    master.stop()
    with opened(pair.slave.root) as snapshot:
        assert (snapshot.min_phy_offset, snapshot.max_phy_offset) == (0, end)
    compare_stores(pair.master, pair.slave)


@pytest.mark.parametrize(
    ("pair", "puts_after"),
    [(RELEASES[0], 0), (RELEASES[1], 100), (OURS, 0), (OURS, 1_500)],
    indirect=["pair"],
)
def test_a_slave_that_is_ahead_says_so_and_is_cut_if_that_is_wanted(pair, puts_after):
    """A copy of the master, made before its last messages, becomes the next master."""
    master = pair.open_master()
    common = master.put(300, 1)["max_phy_offset"]
    master.stop()
    older = pair.directory / "older"
    shutil.copytree(pair.master.root, older)
    master = pair.open_master()
    slave = pair.open_slave(firstOffset=0)
    assert slave.wait(common, _WAIT_SECONDS)["event"] == "reached"
    ahead = master.put(700, 2)["max_phy_offset"]
    assert slave.wait(ahead, _WAIT_SECONDS)["event"] == "reached"
    slave.stop()
    master.stop()

    pair.master.root = older
    master = pair.open_master()
    end = master.put(puts_after, 3)["max_phy_offset"] if puts_after else common
    slave = pair.open_slave()
    assert slave.wait(2**40, _WAIT_SECONDS)["event"] == "late"
    failure = slave.state()["failure"]
    assert failure is not None
    assert ("ahead" in failure) or ("differ" in failure), failure
    slave.stop()
    with opened(pair.slave.root) as snapshot:
        assert snapshot.max_phy_offset == ahead
    log = log_bytes(pair.slave.root, 0, ahead)

    pair.follow(end, cut="true")
    master.stop()
    compare_stores(pair.master, pair.slave)
    kept = sorted(path for path in (pair.slave.root / "_cut").rglob("*") if path.is_file())
    assert int(kept[0].name) == common
    assert int(kept[-1].name) + kept[-1].stat().st_size == ahead
    for path in kept:
        assert log.startswith(path.read_bytes(), int(path.name)), path


@pytest.mark.parametrize(("kind", "release"), [*zip(RELEASES, RELEASES), (OURS, RELEASES[0])])
def test_a_broker_serves_all_that_was_acknowledged_from_the_copy_of_a_dead_master(
    tmp_path, processes, kind, release
):
    journal = tmp_path / "journal"
    with ExitStack() as stack:
        pair = Pair(tmp_path, processes, kind, stack)
        pair.open_slave()
        master = pair.start(pair.master)
        settings = {**SETTINGS, "inSyncReplicas": 2}
        master.open_master(pair.master.root, pair.master.port, "SYNC_MASTER", **settings)
        before = master.put_until_acknowledged(_WAIT_SECONDS)
        statuses = master.put(600, 1, threads=4, journal=journal)["statuses"]
        master.kill()
        pair.slave.process.kill()
    acknowledged = read_journal(journal)
    assert len(acknowledged) == statuses["PUT_OK"] - before > 100
    with opened(pair.slave.root) as snapshot:
        bodies = [snapshot.look_message_by_offset(at) for _, at, _ in acknowledged]
    topics = {message.topic for message in bodies}
    broker = {**SETTINGS, "listenPort": free_port(), "brokerIP1": "127.0.0.1"}
    keys = ",".join(f"{message.topic}:{message.keys[0]}" for message in bodies[::50])
    options = {"topics": ",".join(topics), "keys": keys}
    with Broker(pair.slave.root, tmp_path / "broker", release, broker, options) as running:
        served = running.wait()
    assert served.ok, served.said
    pulled = {row["keys"].split(" ")[0] for row in served.received}
    assert {key for key, _, _ in acknowledged} <= pulled


# RocketMQ follows RocketMQ, both releases in both directions: this checks the checks.


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
            # An empty slave begins at the last segment that exists when it connects.
            first = master.put(1, 0, journal=journal)
            assert slave.wait(first["max_phy_offset"], _READ_SECONDS)["event"] == "reached"
            put = master.put(299, 1, journal=journal)
            assert put["statuses"] == {"PUT_OK": 300}
            assert slave.wait(put["max_phy_offset"], _READ_SECONDS)["event"] == "reached"
            slave.stop()
            put = master.put(300, 2, threads=2, journal=journal)
            slave.open_slave(slave_root, address, slaves_port)
            assert slave.wait(put["max_phy_offset"], _READ_SECONDS)["event"] == "reached"
            slave.kill()
            assert not slave.is_alive
        put = master.put(300, 3, journal=journal)
        with JavaReplica(tmp_path / "slave-again", other) as slave:
            slave.open_slave(slave_root, address, slaves_port)
            assert slave.wait(put["max_phy_offset"], _READ_SECONDS)["event"] == "reached"
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


# Answers of RocketMQ's master if it lacks something, and if it has nothing new.


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
    assert whole_log(tmp_path / "slave")[:end] == whole_log(master.root)[:end]
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
    assert whole_log(tmp_path / "slave")[:end] == whole_log(master.root)[:end]
    assert_clean(tmp_path / "slave", config)
