"""Kills and losses of power amid transactions, store after store, until the time is over."""

from __future__ import annotations

import pytest

from tests.soak.test_crash import stores
from tests.store_core.test_killed_writer import Writers
from tests.store_core.transaction.test_killed_transactions import KILLS_PER_STORE, MODULE, kill_some
from tests.store_core.transaction.test_power_loss_of_transactions import (
    MOMENTS,
    cut_power_of_transactions,
)

pytestmark = pytest.mark.soak


def test_kills(tmp_path, capsys, soak_seconds, soak_seed):
    writers, kills = Writers(MODULE), 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            kills += kill_some(root, writers, seed, KILLS_PER_STORE)
    finally:
        with capsys.disabled():
            print(f"\n{kills} kills amid transactions")
    writers.close()


def test_losses_of_power(tmp_path, capsys, soak_seconds, soak_seed):
    states = 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            states += cut_power_of_transactions(root, seed, MOMENTS)
    finally:
        with capsys.disabled():
            print(f"\n{states} states that a loss of power left amid transactions")
