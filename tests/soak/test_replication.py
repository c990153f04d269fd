# SPDX-License-Identifier: Apache-2.0
"""Rounds of replication, and kills of synchronous masters, until the time is over."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop import java_cluster, java_oracle
from tests.interop.replication_rounds import DIRECTIONS, Case, KilledMaster, Processes, Round
from tests.interop.test_ping_pong import PROFILES, play

pytestmark = pytest.mark.soak

_AT_ONCE = 3
_KILLS = 100
# A store grows with each kill, and so does what its master reads when it starts again.
_KILLS_OF_A_STORE = 10
_ROUNDS = 20


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    for release in java_cluster.RELEASES:
        java_cluster.build(release)
    for api in java_oracle.APIS:
        java_oracle.build(api)
    made = Processes(tmp_path_factory.mktemp("processes"))
    yield made
    made.close()


def test_both_are_equal_in_the_end(tmp_path, capsys, processes, soak_seconds, soak_seed):
    deadline = time.monotonic() + soak_seconds
    seeds, done = itertools.count(1_000 * soak_seed), Counter()

    def play_some():
        while time.monotonic() < deadline:
            seed = next(seeds)
            directory = tmp_path / str(seed)
            done.update(Round(Case.of_seed(seed), directory, processes).play())
            done["rounds"] += 1
            shutil.rmtree(directory)

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            players = [pool.submit(play_some) for _ in range(_AT_ONCE)]
        for player in players:
            player.result()
    finally:
        with capsys.disabled():
            print(f"\nreplication: {dict(done)}")
    assert done["rounds"]


def test_killed_synchronous_masters_lose_nothing_that_they_acknowledged(
    tmp_path, capsys, processes, soak_seconds, soak_seed
):
    deadline = time.monotonic() + soak_seconds
    kills = acknowledged = 0
    try:
        for turn in itertools.count():
            direction = DIRECTIONS[turn % len(DIRECTIONS)]
            directory = tmp_path / str(turn)
            with KilledMaster(directory, processes, direction, 1_000 * soak_seed + turn) as killed:
                for _ in range(_KILLS_OF_A_STORE):
                    acknowledged += killed.kill()
                    kills += 1
            shutil.rmtree(directory)
            if kills >= _KILLS and time.monotonic() >= deadline:
                break
    finally:
        with capsys.disabled():
            print(f"\n{kills} kills of synchronous masters, {acknowledged} acknowledged messages")
    assert kills >= _KILLS


# RocketMQ and this project append to one store in turn, twenty times.


@pytest.mark.parametrize(("api", "profile"), PROFILES)
def test_every_message_is_found_every_time(tmp_path, capsys, soak_seconds, soak_seed, api, profile):
    deadline = time.monotonic() + soak_seconds
    rounds = play(tmp_path, api, profile, _ROUNDS, soak_seed, deadline=deadline)
    with capsys.disabled():
        print(f"\n{rounds} rounds of {profile}")
    assert rounds > 0
