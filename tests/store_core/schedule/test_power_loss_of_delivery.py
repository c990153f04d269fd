# SPDX-License-Identifier: Apache-2.0
"""The power goes while messages are delivered: the offset file is never ahead of the log."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from store_core import MessageStore, ScheduleMessageService
from store_core.errors import LogDamageError, StoreFormatError
from store_core.tools.repair.store_recovery import recover_store
from tests.store_core.crash.by_hand import dispatch_all, nothing_forced, without_threads
from tests.store_core.schedule.delayed_store import Clock
from tests.store_core.schedule.test_killed_delivery import (
    delay_config,
    delayed_message,
    deliver_all,
    look,
)
from tests.store_core.simulated_disk import SimulatedDisk, fates

SETTINGS = ({}, {"flush_disk_type": "ASYNC_FLUSH"})
MOMENTS = 4
_START_MS = 1_700_000_000_000
_STEPS_MS = (0, 1, 700, 15_000, 60_000)


@pytest.mark.parametrize("seed", range(len(SETTINGS)))
def test_what_the_file_says_is_delivered_is_delivered(tmp_path, seed):
    assert cut_power(tmp_path, seed, MOMENTS) >= 5 * MOMENTS


def cut_power(directory: Path, seed: int, moments: int) -> int:
    """Check the states left by a power loss at some moments; return the number of states."""
    generator = random.Random(seed)
    settings = {**SETTINGS[seed % len(SETTINGS)], "flush_delay_offset_interval": 1 << 30}
    root = directory / "store"
    root.mkdir()
    states = 0
    with nothing_forced():
        disk, acknowledged, now = _record(root, generator, settings)
        for moment in sorted(generator.sample(range(disk.time + 1), moments)):
            for fate in fates(generator):
                left = directory / "left"
                disk.build(moment, fate, left)
                _judge(left, settings, {n for at, n in acknowledged if at <= moment}, now)
                shutil.rmtree(left)
                states += 1
    return states


def _record(root, generator, settings):
    """Put, deliver, flush and save in some order; return the disk and when each was on it."""
    disk, clock = SimulatedDisk(root), Clock(_START_MS)
    acknowledged, number = [], 0
    with disk.recording(), without_threads():
        for _ in range(2):
            with MessageStore(delay_config(root, **settings), clock=clock) as store:
                service, waiting = ScheduleMessageService(store), []
                for _ in range(30):
                    clock.now += generator.choice(_STEPS_MS)
                    assert store.put_message(delayed_message(number)).is_appended
                    waiting.append(number)
                    number += 1
                    if generator.random() < 0.5:
                        dispatch_all(store)
                        service.run_once()
                    if generator.random() < 0.2:
                        service.save()
                    if generator.random() < 0.2:
                        store.flush()
                        acknowledged += [(disk.time, waited) for waited in waiting]
                        waiting = []
            acknowledged += [(disk.time, waited) for waited in waiting]
    return disk, acknowledged, clock.now


def _judge(root, settings, acknowledged, now):
    config = delay_config(root, **settings)
    try:
        found = _look(config, now)
    except (LogDamageError, StoreFormatError):
        # Queues may reach the disk before the log does: its torn end is cut, as the error advises.
        assert settings.get("flush_disk_type") == "ASYNC_FLUSH"
        recover_store(str(root), config, clock=lambda: now, cut=True)
        found = _look(config, now)
    assert acknowledged <= found.waited.keys()
    deliver_all(config, now + 10**7)


def _look(config, now):
    with without_threads(), MessageStore(config, clock=lambda: now) as store:
        dispatch_all(store)
        return look(store)
