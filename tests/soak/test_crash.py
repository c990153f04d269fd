# SPDX-License-Identifier: Apache-2.0
"""Kills and power losses, one store after the other, until the time is over."""

from __future__ import annotations

import itertools
import shutil
import time

import pytest

from tests.store_core.crash.power_cuts import cut_power
from tests.store_core.schedule.test_killed_delivery import KILLS_PER_STORE as KILLS_OF_DELIVERY
from tests.store_core.schedule.test_killed_delivery import kill_some as kill_deliveries
from tests.store_core.schedule.test_power_loss_of_delivery import cut_power as cut_power_of_delivery
from tests.store_core.test_killed_writer import KILLS_PER_STORE, Writers, kill_some
from tests.store_core.test_power_loss import MOMENTS
from tests.store_core.transaction.test_killed_transactions import (
    KILLS_PER_STORE as KILLS_OF_TRANSACTIONS,
)
from tests.store_core.transaction.test_killed_transactions import MODULE
from tests.store_core.transaction.test_killed_transactions import kill_some as kill_transactions
from tests.store_core.transaction.test_power_loss_of_transactions import (
    MOMENTS as MOMENTS_OF_TRANSACTIONS,
)
from tests.store_core.transaction.test_power_loss_of_transactions import (
    cut_power_of_transactions,
)

pytestmark = pytest.mark.soak

_SEEDS_APART = 1_000_000
_MOMENTS = 12


def stores(directory, seconds, seed):
    """Yield a directory and a seed for each store; the first one always."""
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


# Delivery of delayed messages is killed, or loses power, until the time is over.


def test_kills_of_delivery(tmp_path, capsys, soak_seconds, soak_seed):
    writers, kills = Writers("tests.store_core.schedule.test_killed_delivery"), 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            kills += kill_deliveries(root, writers, seed, KILLS_OF_DELIVERY)
    finally:
        with capsys.disabled():
            print(f"\n{kills} kills of delivery")
    writers.close()


def test_losses_of_power_during_delivery(tmp_path, capsys, soak_seconds, soak_seed):
    states = 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            states += cut_power_of_delivery(root, seed, _MOMENTS)
    finally:
        with capsys.disabled():
            print(f"\n{states} states that a loss of power left")


# Kills and power losses amid transactions, store after store, until the time is over.


def test_kills_amid_transactions(tmp_path, capsys, soak_seconds, soak_seed):
    writers, kills = Writers(MODULE), 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            kills += kill_transactions(root, writers, seed, KILLS_OF_TRANSACTIONS)
    finally:
        with capsys.disabled():
            print(f"\n{kills} kills amid transactions")
    writers.close()


def test_losses_of_power_amid_transactions(tmp_path, capsys, soak_seconds, soak_seed):
    states = 0
    try:
        for root, seed in stores(tmp_path, soak_seconds, soak_seed):
            states += cut_power_of_transactions(root, seed, MOMENTS_OF_TRANSACTIONS)
    finally:
        with capsys.disabled():
            print(f"\n{states} states that a loss of power left amid transactions")
