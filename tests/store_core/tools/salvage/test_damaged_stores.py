# SPDX-License-Identifier: Apache-2.0
"""Golden stores, damaged at random: all undamaged messages come back, nothing is invented."""

from __future__ import annotations

import pytest

from tests.golden_store import tree_state
from tests.store_core.tools.salvage.damage import damaged, judge, salvage


@pytest.mark.parametrize("seed", range(30))
def test_everything_that_was_not_hit(seed, tmp_path):
    damage = damaged(seed, tmp_path)
    before = tree_state(damage.root)
    report = salvage(damage, tmp_path / "new")
    assert tree_state(damage.root) == before
    judge(damage, tmp_path / "new", report)
