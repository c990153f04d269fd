# SPDX-License-Identifier: Apache-2.0
"""Power is lost at any moment, even while a store recovers: flushed records are not lost."""

from __future__ import annotations

import random

import pytest

from store_core import MessageStore
from store_core.services.environment import Environment
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.crash.messages import config_of, make_batch, numbers_in
from tests.store_core.crash.power_cuts import SETTINGS, cut_power
from tests.store_core.simulated_disk import SimulatedDisk, fates

STORES = len(SETTINGS)  # `make soak` goes on with other seeds
MOMENTS = 14
_FATES = 5


@pytest.mark.parametrize("seed", range(STORES))
def test_what_was_flushed_survives(tmp_path, seed):
    assert cut_power(tmp_path, seed, MOMENTS) >= MOMENTS * _FATES


def test_a_segment_expires_only_when_its_units_are_flushed(tmp_path):
    # else a broker's queue goes on at other queue offsets: nothing is left to make its units from
    root, disk_is_full = tmp_path / "store", False
    root.mkdir()
    disk = SimulatedDisk(root)
    environment = Environment(lambda: 1, lambda _: 0.86 if disk_is_full else 0.1, lambda _: 12)
    config = config_of(root)
    with nothing_forced(), disk.recording(), without_threads():
        with MessageStore(config, environment=environment) as store:
            store.append_batch(make_batch(range(200)))
            dispatch_all(store)
            disk_is_full = True
            assert store.services.clean_commit_log.run_once()
            assert store.min_phy_offset > 0
            assert store.services.correct_logic_offset.run_once()
            expected = numbers_in(store)
            all_is_lost = next(fates(random.Random(0)))
            disk.build(disk.time, all_is_lost, tmp_path / "left")
            assert queue_files(tmp_path / "left") == queue_files(root)
        with MessageStore(config_of(tmp_path / "left")) as store:
            assert numbers_in(store) == expected


def test_queues_are_never_ahead_of_the_log_on_the_disk(tmp_path):
    root = tmp_path / "store"
    root.mkdir()
    disk = SimulatedDisk(root)
    config = config_of(root, flush_disk_type="ASYNC_FLUSH")
    with nothing_forced(), disk.recording(), without_threads():
        with MessageStore(config) as store:
            store.append_batch(make_batch(range(100)))
            dispatch_all(store)
            store.services.flush_queues.finish()
            expected = numbers_in(store)
            all_is_lost = next(fates(random.Random(0)))
            disk.build(disk.time, all_is_lost, tmp_path / "left")
        with MessageStore(config_of(tmp_path / "left")) as store:
            assert numbers_in(store) == expected


def queue_files(root):
    paths = (root / "consumequeue").rglob("0*")
    return {p.relative_to(root): p.read_bytes() for p in paths if p.is_file()}
