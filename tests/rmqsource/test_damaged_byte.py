# SPDX-License-Identifier: Apache-2.0
"""One damaged byte anywhere: `check` sees it, or no table changes, or nothing covers that field."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.golden_store import golden
from tests.rmqsource.damaged_byte import UNCOVERED, undetected

DOCS = Path(__file__).parents[2] / "docs" / "differences.md"


@pytest.mark.parametrize(("name", "seed"), [("onefile-5x", 1), ("onefile-5x", 2), ("batch-5x", 3)])
def test_no_clean_verdict_on_other_rows(tmp_path, name, seed):
    chance = random.Random(seed)
    count, unseen = undetected(golden(name), tmp_path, chance, lambda made: made < 15)
    assert count == 15
    assert [found for found in unseen if found[0].field not in UNCOVERED] == []


def test_the_docs_list_exactly_what_nothing_covers():
    section = DOCS.read_text("utf-8").split("## What `check` cannot see")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE)
    listed = re.findall(r"`([^`]+)`", " ".join(cells))
    assert len(listed) == len(UNCOVERED)
    assert set(listed) == UNCOVERED
