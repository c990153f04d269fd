"""What a salvage says of compacted logs, which it does not take over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from store_core.config.message_store_config import MessageStoreConfig
from store_core.tools.salvage.salvage import SalvageOptions, salvage_store
from store_core.tools.salvage.salvage_report import SalvageReport
from tests.golden_compacted import TOPIC, unpack_compacted
from tests.golden_kinds import OPTIONS, unpack_kind
from tests.golden_store import tree_state


def salvaged(root: Path, target: Path) -> SalvageReport:
    config = MessageStoreConfig.from_properties(OPTIONS)
    return salvage_store(str(root), str(target), config, SalvageOptions(clock=lambda: 1))


def test_messages_that_only_the_compacted_log_has_are_counted(tmp_path):
    root = unpack_compacted(tmp_path)
    before = tree_state(root)
    report = salvaged(root, tmp_path / "new")
    text = f"are not in the new one ({TOPIC}: 10)"
    assert [text in note for note in report.notes].count(True) == 1
    assert tree_state(root) == before
    assert not (tmp_path / "new" / "compaction").exists()


def test_nothing_is_lost_where_the_log_has_all(tmp_path):
    report = salvaged(unpack_kind("compaction-5x", tmp_path), tmp_path / "new")
    (note,) = report.notes
    assert note.startswith("compacted logs are not copied")


@pytest.mark.parametrize("lost", ["commitlog", "consumequeue"])
def test_a_lost_part_of_the_store_counts(tmp_path, lost):
    root = unpack_compacted(tmp_path)
    shutil.rmtree(root / lost)
    (root / lost).mkdir()
    count = 50 if lost == "commitlog" else 10
    report = salvaged(root, tmp_path / "new")
    assert [f"({TOPIC}: {count})" in note for note in report.notes].count(True) == 1
