"""Golden stores damaged at random and salvaged: 200 of them, then until the time is over."""

from __future__ import annotations

import shutil
import time

import pytest

from tests.store_core.tools.salvage.damage import damaged, judge, salvage

pytestmark = pytest.mark.soak
_AT_LEAST = 200


def test_random_damage(tmp_path, soak_seconds, soak_seed):
    deadline, number = time.monotonic() + soak_seconds, 0
    while number < _AT_LEAST or time.monotonic() < deadline:
        directory = tmp_path / "case"
        damage = damaged(soak_seed * 1_000_003 + number, directory)
        report = salvage(damage, directory / "new")
        judge(damage, directory / "new", report)
        shutil.rmtree(directory)
        number += 1
    print(f"\n{number} stores damaged and salvaged")
