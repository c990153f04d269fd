"""Power is lost at any moment of a transaction: what was decided holds, once."""

from __future__ import annotations

import random

import pytest

from tests.store_core.crash.by_hand import nothing_forced
from tests.store_core.simulated_disk import SimulatedDisk, fates
from tests.store_core.transaction.power_cuts import cut_power_of_transactions
from tests.store_core.transaction.transactions_by_hand import START_MS, driven

STORES, MOMENTS = 2, 5
_FATES = 5


@pytest.mark.parametrize("seed", range(STORES))
def test_decisions_survive(tmp_path, seed):
    assert cut_power_of_transactions(tmp_path, seed, MOMENTS) >= MOMENTS * _FATES


def test_offsets_are_not_ahead_of_the_copies_they_count_on(tmp_path):
    """Nobody waits for the copy of an immune half message: it could be lost, and with it all."""
    root, clock = tmp_path / "store", [START_MS]
    root.mkdir()
    disk = SimulatedDisk(root)
    with nothing_forced(), disk.recording(), driven(root, clock, forced=True) as run:
        run.prepare(1, CHECK_IMMUNITY_TIME_IN_SECONDS="300")
        assert run.check(30_000).half_offset == 1
        disk.build(disk.time, next(fates(random.Random(0))), tmp_path / "left")
    with driven(tmp_path / "left", clock) as run:
        assert len(run.service.open_queue_offsets()) == 1
