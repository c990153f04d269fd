"""Our broker is killed under all kinds of clients, again and again, until the time is over."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter

import pytest

from tests.interop.broker_kills import kill_broker_often
from tests.interop.java_cluster import RELEASES

pytestmark = pytest.mark.soak

_KILLS_OF_A_STORE = 20


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
