# SPDX-License-Identifier: Apache-2.0
"""Our broker is killed under all kinds of clients, again and again, until the time is over."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter

import pytest

import rmqnet
from tests.interop import java_cluster
from tests.interop.broker_chores import kill_broker_often
from tests.interop.client_node import ClientNode
from tests.interop.java_cluster import RELEASES
from tests.interop.live_cluster import LiveCluster
from tests.interop.live_failures import SETTINGS, FailureRun
from tests.interop.test_drive import SETTINGS as DRIVE_SETTINGS
from tests.interop.test_drive import driven, sections

pytestmark = pytest.mark.soak

_KILLS_OF_A_STORE = 20
_OUTAGES_OF_A_CLUSTER = 10
_BROKERS = ("broker-a", "broker-b")
_RUNS = 3


def test_nothing_acknowledged_is_lost(tmp_path, capsys, soak_seconds, soak_seed):
    deadline, done = time.monotonic() + soak_seconds, Counter()
    try:
        for turn in itertools.count():
            directory = tmp_path / str(turn)
            directory.mkdir()
            release = RELEASES[(soak_seed + turn) % len(RELEASES)]
            seed = 1_000 * soak_seed + turn
            done.update(
                kill_broker_often(directory, release, seed, _KILLS_OF_A_STORE, deadline=deadline)
            )
            done["stores"] += 1
            shutil.rmtree(directory)
            if time.monotonic() >= deadline:
                break
    finally:
        with capsys.disabled():
            print(f"\nkilled brokers: {dict(done)}")
    assert done["outages"]


# Our producers and consumers while brokers of a live cluster die, until the time is over.


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


# RocketMQ's clients drive our cluster through every section, three runs for each release.


@pytest.mark.parametrize("release", RELEASES)
def test_three_runs_in_a_row(tmp_path, soak_seed, release):
    names = sections(release, tmp_path / "listed")
    for run in range(_RUNS):
        seed = 100 * soak_seed + run
        directory = tmp_path / str(run)
        directory.mkdir()
        with rmqnet.serve(directory / "store", settings=DRIVE_SETTINGS) as cluster:
            failed, passed = driven(release, cluster.namesrv_addr, directory / "java", seed, names)
        assert failed == [], f"seed {seed}"
        assert passed > 200, f"seed {seed}"
