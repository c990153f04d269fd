"""Our producers and consumers while brokers of a live cluster die, until the time is over."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter

import pytest

from tests.interop import java_cluster
from tests.interop.client_node import ClientNode
from tests.interop.live_cluster import LiveCluster
from tests.interop.live_failures import SETTINGS, FailureRun

pytestmark = pytest.mark.soak

_OUTAGES_OF_A_CLUSTER = 10
_BROKERS = ("broker-a", "broker-b")


def test_clients_lose_nothing_while_brokers_die(tmp_path, capsys, soak_seconds, soak_seed):
    deadline, done = time.monotonic() + soak_seconds, Counter()
    try:
        for turn in itertools.count():
            release = java_cluster.RELEASES[(soak_seed + turn) % len(java_cluster.RELEASES)]
            directory = tmp_path / str(turn)
            done.update(_play(directory, release, 1_000 * soak_seed + turn, deadline))
            done["clusters"] += 1
            shutil.rmtree(directory)
            if time.monotonic() >= deadline:
                break
    finally:
        with capsys.disabled():
            print(f"\nlive clients: {dict(done)}")
    assert done["outages"]


def _play(directory, release, seed, deadline):
    cluster = LiveCluster(directory / "cluster", release, brokers=_BROKERS, settings=SETTINGS)
    with (
        cluster,
        ClientNode(directory / "java", release, cluster.namesrv_addr) as java,
        FailureRun(cluster, java, seed) as run,
    ):
        for number in range(_OUTAGES_OF_A_CLUSTER):
            run.break_one(clean=number % 3 == 2)
            if time.monotonic() >= deadline:
                break
        return run.finish()
