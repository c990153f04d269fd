"""Kills and losses of power, one store after the other, until the time is over."""

from __future__ import annotations

import itertools
import shutil
import time

import pytest

from tests.store_core.crash.power_cuts import cut_power
from tests.store_core.test_killed_writer import KILLS_PER_STORE, Writers, kill_some
from tests.store_core.test_power_loss import MOMENTS

pytestmark = pytest.mark.soak
_SEEDS_APART = 1_000_000


def stores(directory, seconds, seed):
    """Yield a directory and a seed for each store; the first in any case."""
    deadline = time.monotonic() + seconds
    for number in itertools.count(seed * _SEEDS_APART):
        root = directory / str(number)
        root.mkdir()
        yield root, number
        shutil.rmtree(root)
        if time.monotonic() > deadline:
            return


def test_kills(tmp_path, capsys, soak_seconds, soak_seed):
    writers, kills = Writers(), 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            kills += kill_some(root, writers, seed, KILLS_PER_STORE)
    finally:
        with capsys.disabled():
            print(f"\n{kills} kills")
    writers.close()


def test_losses_of_power(tmp_path, capsys, soak_seconds, soak_seed):
    states = 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            states += cut_power(root, seed, MOMENTS)
    finally:
        with capsys.disabled():
            print(f"\n{states} states that a loss of power left")
