"""Power is lost at any moment: what was acknowledged with synchronous flush is on the disk."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from store_core import MessageStore
from tests.store_core.crash.judge import judge
from tests.store_core.crash.messages import config_of, put_some
from tests.store_core.simulated_disk import SimulatedDisk

STORES = 4
MOMENTS = 60
_PUTS = 24


@pytest.mark.parametrize("seed", range(STORES))
def test_acknowledged_messages_survive(tmp_path, seed):
    assert survive(tmp_path, seed, MOMENTS) >= MOMENTS


def survive(directory: Path, seed: int, moments: int) -> int:
    """Write a store, then judge what a loss of power could leave of it; return how many states."""
    generator = random.Random(seed)
    disk, puts = _written(directory / "store", generator)
    states = 0
    for moment in sorted(generator.sample(range(disk.time), min(moments, disk.time))):
        acknowledged = {n for time, numbers in puts if time <= moment for n in numbers}
        for choose in disk.states(moment, generator):
            left = directory / f"left-{states}"
            disk.build(moment, choose, left)
            judge(left, config_of(left), acknowledged, range(2000))
            shutil.rmtree(left)
            states += 1
    return states


def _written(root: Path, generator: random.Random) -> tuple[SimulatedDisk, list[tuple[int, range]]]:
    root.mkdir()
    disk = SimulatedDisk(root)
    puts: list[tuple[int, range]] = []
    number = 0
    with disk.recording():
        for _ in range(3):
            with MessageStore(config_of(root)) as store:
                for _ in range(_PUTS // 3):
                    numbers = put_some(store, number, generator)
                    number = numbers[-1] + 1
                    puts.append((disk.time, numbers))
    return disk, puts
