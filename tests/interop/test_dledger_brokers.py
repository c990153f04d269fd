# SPDX-License-Identifier: Apache-2.0
"""Stores of running DLedger brokers, read meanwhile: one node, and a failing group of three."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from store_core.layout import DLEDGER_INDEX_UNIT
from tests.golden_store import tree_state
from tests.interop.client_node import ClientNode, wait_until
from tests.interop.java_cluster import RELEASES, free_port
from tests.interop.live_cluster import BROKER, LiveCluster
from tests.interop.placed_rows import PLACE, Placed, pull_placed, read_placed
from tests.rmqsource.stream.simulated_query import Checkpoint, SimulatedQuery
from tests.store_core.tools.check.support import checked, kinds

pytestmark = pytest.mark.interop

TOPIC, QUEUES, GROUP = "orders", 4, "judge"
INDEX = {"maxHashSlotNum": "500", "maxIndexNum": "2000"}
FILES = {"mappedFileSizeCommitLog": 128 << 10, "mappedFileSizeConsumeQueue": 20 * 1000, **INDEX}


def settings_of_node(node: str, peers: str) -> dict[str, object]:
    return {
        "enableDLegerCommitLog": True,
        "dLegerGroup": BROKER,
        "dLegerPeers": peers,
        "dLegerSelfId": node,
        # Neither master nor slave before the group has voted, as RocketMQ starts up.
        "brokerId": -1,
    }


def rows_of(root: Path, **options: Any) -> Placed:
    return read_placed(root, TOPIC, **INDEX, **options)


def pulled(client: ClientNode) -> Placed:
    return pull_placed(client, TOPIC, GROUP)


def wait_for_leader(client: ClientNode, cluster: LiveCluster, other_than: str = "") -> str:
    """Return the broker of the group to which the name server sends producers."""
    by_address = {cluster.address(broker): broker for broker in cluster.brokers}
    found: list[str] = []

    def is_known() -> bool:
        tables = client.ask("cluster")["brokerAddrTable"]
        address = tables.get(BROKER, {}).get("brokerAddrs", {}).get("0")
        leader = by_address.get(address, "")
        found[:] = [leader]
        return leader not in {"", other_than}

    assert wait_until(is_known, 60), found
    return found[0]


@pytest.mark.parametrize("release", RELEASES)
def test_a_store_is_read_and_followed_while_its_broker_writes(tmp_path, release):
    node = settings_of_node("n0", f"n0-127.0.0.1:{free_port()}")
    with LiveCluster(tmp_path, release, settings={**FILES, **node}) as cluster:
        root = cluster.store()
        with ClientNode(tmp_path / "client", release, cluster.namesrv_addr) as client:
            wait_for_leader(client, cluster)
            client.create_topic(TOPIC, QUEUES)
            client.start_producer("p", "producers")
            client.send("p", TOPIC, 20, seed=1)
            checkpoint = Checkpoint()
            options = {"path": root, "topic": TOPIC, "startingOffsets": "earliest", **INDEX}
            query = SimulatedQuery(checkpoint, options)
            before = -1
            client.ask("start_sending", name="p", topic=TOPIC, count=3000, seed=2, rate=600)
            while before < 3000:
                query.run_once()
                for access in ("auto", "commitlog", "consumequeue"):
                    rows = rows_of(root, access=access)
                    assert len(rows) >= before
                    before = len(rows)
            client.ask("join_sending", name="p")
            wanted = pulled(client)
            assert len(wanted) == 3020
            assert wait_until(lambda: rows_of(root) == wanted)
            with cluster.frozen():  # which creates files of its own at any time
                before_reading = tree_state(root)
                assert rows_of(root, access="consumequeue") == wanted
                assert rows_of(root, keys=json.dumps(["K2-77"])).items() <= wanted.items()
                assert tree_state(root) == before_reading
            query.all_available()
            assert sorted(tuple(row[n] for n in PLACE) for row in checkpoint.rows) == sorted(wanted)
        cluster.stop_broker()
        assert rows_of(root) == wanted
        assert index_findings(root) == {}
        overwrite_unit(root, 3)
        assert index_findings(root) == {"ENTRY_INDEX": 1}
        cluster.start_broker()
        cluster.stop_broker()
        assert index_findings(root) == {"ENTRY_INDEX": 1}  # no start of DLedger repairs it
        (root / "dledger-n0" / "index").rename(tmp_path / "index")  # as check advises
        cluster.start_broker()
        cluster.stop_broker()
        assert index_findings(root) == {}
    assert rows_of(root) == wanted


def index_findings(root: Path) -> dict[str, int]:
    """Return the findings about a node's index; check must have read each entry."""
    report = checked(root, {name: str(size) for name, size in FILES.items()})
    assert report.counts.entry_index_units == report.counts.records > 3000
    return {name: n for name, n in kinds(report).items() if name.startswith("ENTRY_")}


def overwrite_unit(root: Path, index: int) -> None:
    assert len(list((root / "dledger-n0" / "data").iterdir())) > 3  # otherwise a start repairs it
    with (root / "dledger-n0" / "index" / f"{0:020d}").open("r+b") as file:
        file.seek(index * DLEDGER_INDEX_UNIT.size)
        file.write(bytes(DLEDGER_INDEX_UNIT.size))


@pytest.mark.parametrize("release", RELEASES)
def test_a_group_of_three_shows_the_same_on_each_node(tmp_path, release):
    nodes = [f"n{i}" for i in range(3)]
    peers = ";".join(f"{node}-127.0.0.1:{free_port()}" for node in nodes)
    brokers = [f"{BROKER}-{node}" for node in nodes]
    own = {
        broker: {**settings_of_node(node, peers), "brokerName": BROKER}
        for broker, node in zip(brokers, nodes)
    }
    with (
        LiveCluster(tmp_path, release, brokers=brokers, settings=FILES, settings_of=own) as cluster,
        ClientNode(tmp_path / "client", release, cluster.namesrv_addr) as client,
    ):
        leader = wait_for_leader(client, cluster)
        client.create_topic(TOPIC, QUEUES)
        client.start_producer("p", "producers")
        client.send("p", TOPIC, 400, seed=1)
        cluster.kill_broker(leader)
        assert wait_for_leader(client, cluster, other_than=leader) != leader
        assert wait_until(
            lambda: client.ask("send", name="p", topic=TOPIC, count=1, seed=2)["acknowledged"]
        )
        client.send("p", TOPIC, 400, seed=3)
        wanted = pulled(client)
        assert len(wanted) >= 801
        others = [b for b in brokers if b != leader]
        for broker in others:
            root = cluster.store(broker)
            assert wait_until(lambda at=root: rows_of(at) == wanted), broker
        for broker in others:
            cluster.kill_broker(broker)
    for broker in brokers:
        shown = rows_of(cluster.store(broker), access="commitlog")
        assert shown.items() <= wanted.items(), broker
        assert len(shown) >= (0 if broker == leader else 801)
