"""Table ``timers`` of a running broker of RocketMQ: what it says is what its clients get."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqnet import Producer
from rmqsource.scan.store_versions import open_snapshots
from store_core.snapshot.store_snapshot import StoreSnapshot
from store_core.tools.check.store_check import check_store
from tests.golden_store import tree_state
from tests.interop.client_node import ClientNode, wait_until
from tests.interop.live_cluster import LiveCluster
from tests.interop.timed_topic import EACH, SETTINGS, TOPIC, Sender
from tests.rmqsource.metadata.support import rows_of
from tests.rmqsource.reading import parsed, read_rows

pytestmark = pytest.mark.interop

_COUNT = 40


def states(root: Path) -> dict[str, str]:
    (snapshot,) = open_snapshots(parsed(root))
    with snapshot:
        rows = rows_of(snapshot, "timers")
    return {row["keys"][0]: row["state"] for row in rows}


def in_topic(root: Path) -> set[str]:
    return {row["keys"][0] for row in read_rows(root, topic=TOPIC)}


def test_states_of_a_running_broker_and_after_its_restart(tmp_path: Path) -> None:
    with LiveCluster(tmp_path, settings=SETTINGS) as cluster:
        store = cluster.store()
        with ClientNode(tmp_path / "client", "5.3.3", cluster.namesrv_addr) as client:
            client.create_topic(TOPIC, 1)
            with Producer("senders", cluster.namesrv_addr) as producer:
                sender = Sender(producer)
                now = int(time.time() * 1000)
                for number in range(_COUNT):
                    sender.send(f"m-{number}", now + 2000 + 150 * number)
                for number in range(EACH):
                    sender.send(f"gone-{number}", now + 7500)
                    sender.cancel(f"gone-{number}", now + 7500)
            _follow(store)
            received = client.pull_all(TOPIC)
            assert {row["keys"] for row in received} == {f"m-{n}" for n in range(_COUNT)}
            with Producer("later", cluster.namesrv_addr) as producer:
                sender = Sender(producer)
                due = int(time.time() * 1000) + 5500
                for number in range(EACH):
                    sender.send(f"later-{number}", due)
            assert wait_until(lambda: states(store).get("later-3") == "pending")
        cluster.kill_broker()
        before = tree_state(store)
        found = states(store)
        assert {name for name, state in found.items() if state == "pending"} == {
            f"later-{number}" for number in range(EACH)
        }
        _check(store)
        assert tree_state(store) == before
        cluster.start_broker()
        assert wait_until(lambda: states(store)["later-3"] == "delivered")
        assert in_topic(store) >= {f"later-{number}" for number in range(EACH)}
        cluster.stop_broker()
        _check(store)


def _follow(store: Path) -> None:
    """Look at the table until all is over: nothing is delivered that is not in its topic."""

    def look() -> bool:
        found = states(store)
        delivered = {name for name, state in found.items() if state == "delivered"}
        assert delivered <= in_topic(store)
        assert not any(found[name] == "delivered" for name in found if name.startswith("gone"))
        assert "unknown" not in found.values()
        return len(delivered) == _COUNT

    assert wait_until(look)
    assert wait_until(lambda: states(store)["gone-0"] == "cancelled")


def _check(store: Path) -> None:
    with StoreSnapshot(store) as snapshot:
        report = check_store(snapshot)
    assert [f for f in report.findings if f.kind.name.startswith("TIMER")] == []
