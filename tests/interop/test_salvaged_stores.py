"""RocketMQ opens stores that were salvaged from damaged ones, and finds nothing wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden_store import golden
from tests.interop import java_oracle
from tests.store_core.tools.salvage.damage import NAMES, Damage, damaged, judge, salvage

pytestmark = pytest.mark.interop

SEEDS = (15, 22, 12, 41)
"""A store whose first messages are lost, one with inner batches, one of 4.9, one of many paths."""


def opened_by_rocketmq(damage: Damage, name: str, directory: Path) -> dict[str, object]:
    """Let RocketMQ open ``DIRECTORY/new``; what it finds."""
    settings = golden(name).config
    (directory / "config.json").write_text(
        json.dumps(
            {
                "store": settings.get("store") or settings["broker_settings"],
                "commitlog_dirs": ["commitlog"],
                "topic_queue_types": settings.get("topic_queue_types", {}),
            }
        )
    )
    api = "v4" if name.endswith("-4x") else "v5"
    return java_oracle.check(directory / "new", api=api)


@pytest.mark.parametrize("seed", SEEDS)
def test_rocketmq_opens_what_was_salvaged(seed, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "made").mkdir()
    damage = damaged(seed, tmp_path / "old")
    report = salvage(damage, tmp_path / "made" / "new")
    judge(damage, tmp_path / "made" / "new", report)
    found = opened_by_rocketmq(damage, NAMES[seed % len(NAMES)][0], tmp_path / "made")
    assert found["ok"], f"{damage.done} {found}"
