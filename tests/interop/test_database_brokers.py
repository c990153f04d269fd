# SPDX-License-Identifier: Apache-2.0
"""Stores of running brokers with queues and settings in RocksDB, read during and after the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqsource.scan.store_versions import open_snapshots
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check.store_check import check_store
from tests.golden_store import tree_state
from tests.interop.client_node import ClientNode, wait_until
from tests.interop.live_cluster import LiveCluster
from tests.interop.placed_rows import PLACE, Placed, pull_placed, read_placed
from tests.rmqsource.metadata.support import rows_of as rows_of_table
from tests.rmqsource.reading import parsed
from tests.rmqsource.stream.simulated_query import Checkpoint, SimulatedQuery

pytestmark = pytest.mark.interop

TOPIC, QUEUES, GROUP = "orders", 4, "judge"
INDEX = {"maxHashSlotNum": "500", "maxIndexNum": "2000"}
SETTINGS: dict[str, object] = {
    "storeType": "defaultRocksDB",
    "mappedFileSizeCommitLog": 256 << 10,
    **INDEX,
}
SENT = 2000


def rows_of(root: Path, **options: Any) -> Placed:
    return read_placed(root, TOPIC, **INDEX, **options)


def pulled(client: ClientNode) -> Placed:
    return pull_placed(client, TOPIC, GROUP)


def database_files(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of all databases' small files; a broker only adds to the logs."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.name in {"CURRENT", "IDENTITY", "LOCK"}
    }


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_store_is_read_and_followed_while_its_broker_writes(tmp_path: Path, version: str) -> None:
    settings = {**SETTINGS, **({"configManagerVersion": "v2"} if version == "v2" else {})}
    with LiveCluster(tmp_path, "5.3.3", settings=settings) as cluster:
        root = cluster.store()
        with ClientNode(tmp_path / "client", "5.3.3", cluster.namesrv_addr) as client:
            client.create_topic(TOPIC, QUEUES)
            client.start_producer("p", "producers")
            client.send("p", TOPIC, 20, seed=1)
            files = database_files(root)
            checkpoint = Checkpoint()
            options = {"path": root, "topic": TOPIC, "startingOffsets": "earliest", **INDEX}
            query = SimulatedQuery(checkpoint, {**options, "readUpTo": "written"})
            before = -1
            client.ask("start_sending", name="p", topic=TOPIC, count=SENT, seed=2, rate=400)
            while before < SENT:
                query.run_once()
                for access in ("auto", "commitlog", "consumequeue"):
                    rows = rows_of(root, access=access)
                    assert len(rows) >= before
                    before = len(rows)
            client.ask("join_sending", name="p")
            wanted = pulled(client)
            assert len(wanted) == SENT + 20
            assert wait_until(lambda: rows_of(root) == wanted)
            assert database_files(root) == files
            with cluster.frozen():  # which adds to its logs at any time
                before_reading = tree_state(root)
                assert rows_of(root, access="consumequeue") == wanted
                assert rows_of(root, keys=json.dumps(["K2-77"])).items() <= wanted.items()
                assert tree_state(root) == before_reading
            query.all_available()
            assert sorted(tuple(row[n] for n in PLACE) for row in checkpoint.rows) == sorted(wanted)
            client.start_consumer("c", "readers", {TOPIC: "*"}, from_where="FIRST")
            client.close_when_consumed("c", TOPIC, SENT + 20)
            offsets = client.consumer_offsets("readers", TOPIC)
        cluster.stop_broker()
    before_reading = tree_state(root)
    assert rows_of(root) == rows_of(root, access="consumequeue") == wanted
    _compare_tables(root, wanted, {queue[-1]: at for queue, at in offsets.items()})
    with StoreSnapshot(root) as snapshot:
        report = check_store(snapshot)
        assert report.is_good, report.findings
        assert report.counts.units >= len(wanted)
    assert tree_state(root) == before_reading


def _compare_tables(root: Path, wanted: Any, offsets: dict[int, int]) -> None:
    ends = {q: max(offset for queue, offset in wanted if queue == q) + 1 for q in range(QUEUES)}
    (snapshot,) = open_snapshots(parsed(root, **INDEX))
    with snapshot:
        queues = rows_of_table(snapshot, "queues", topics=(TOPIC,))
        consumed = rows_of_table(snapshot, "consumer_offsets", topics=(TOPIC,))
    assert {row["queue_id"]: row["max_offset"] for row in queues} == ends
    found = {r["queue_id"]: r["consumer_offset"] for r in consumed if r["group"] == "readers"}
    assert found == offsets == ends


def test_a_store_of_a_killed_broker(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, "5.3.3", settings=SETTINGS) as cluster:
        root = cluster.store()
        with ClientNode(tmp_path / "client", "5.3.3", cluster.namesrv_addr) as client:
            client.create_topic(TOPIC, QUEUES)
            client.start_producer("p", "producers")
            client.send("p", TOPIC, 500, seed=3)
            wanted = pulled(client)
        cluster.kill_broker()
        before = tree_state(root)
        for access in ("auto", "commitlog", "consumequeue"):
            assert rows_of(root, access=access) == wanted
        assert tree_state(root) == before
        cluster.start_broker()
        with ClientNode(tmp_path / "again", "5.3.3", cluster.namesrv_addr) as client:
            assert pulled(client) == wanted
        cluster.stop_broker()
    assert rows_of(root, access="consumequeue") == wanted
