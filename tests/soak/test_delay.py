"""Delivery of delayed messages is killed, or loses power, until the time is over."""

from __future__ import annotations

import pytest

from tests.soak.test_crash import stores
from tests.store_core.schedule.test_killed_delivery import KILLS_PER_STORE, kill_some
from tests.store_core.schedule.test_power_loss_of_delivery import cut_power
from tests.store_core.test_killed_writer import Writers

pytestmark = pytest.mark.soak
_MOMENTS = 12


def test_kills_of_delivery(tmp_path, capsys, soak_seconds, soak_seed):
    writers, kills = Writers("tests.store_core.schedule.test_killed_delivery"), 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            kills += kill_some(root, writers, seed, KILLS_PER_STORE)
    finally:
        with capsys.disabled():
            print(f"\n{kills} kills of delivery")
    writers.close()


def test_losses_of_power_during_delivery(tmp_path, capsys, soak_seconds, soak_seed):
    states = 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            states += cut_power(root, seed, _MOMENTS)
    finally:
        with capsys.disabled():
            print(f"\n{states} states that a loss of power left")
