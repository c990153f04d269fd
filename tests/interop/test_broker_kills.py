# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of our broker: acknowledged messages are still there, and its clients go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.broker_chores import kill_broker_often
from tests.interop.client_node import ClientNode
from tests.interop.live_cluster import LiveCluster
from tests.interop.live_failures import SETTINGS, FailureRun

pytestmark = pytest.mark.interop


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    kills = 3
    counts = kill_broker_often(tmp_path, "5.3.3", 1, kills)
    assert counts["outages"] == kills
    assert min(counts[name] for name in ("Delays", "Transactions", "NewTopics")) > kills
    assert counts["acknowledged"] >= 50 * kills
    assert counts["JavaClients"] > kills


# Brokers are killed and stopped while this project's clients send and consume.


@pytest.mark.parametrize(
    ("release", "brokers", "outages"),
    [
        ("5.3.3", ["broker-a", "broker-b"], ["killed", "stopped"]),
        ("4.9.7", ["broker-a"], ["killed"]),
    ],
    ids=["5.3.3", "4.9.7"],
)
def test_nothing_acknowledged_is_lost_by_java_brokers(
    tmp_path: Path, release: str, brokers: list[str], outages: list[str]
) -> None:
    directory = tmp_path / "cluster"
    with (
        LiveCluster(directory, release, brokers=brokers, settings=SETTINGS) as cluster,
        ClientNode(tmp_path / "java", release, cluster.namesrv_addr) as java,
        FailureRun(cluster, java, seed=1) as run,
    ):
        for outage in outages:
            run.break_one(clean=outage == "stopped")
        counts = run.finish()
    assert counts["outages"] == len(outages)
    assert counts["acknowledged"] >= 100 * len(outages)
