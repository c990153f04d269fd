"""One damaged byte at a random place of every kind of golden store, until the time is over."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest

from tests.golden_store import GOLDEN_NAMES, golden
from tests.rmqsource.damaged_byte import UNCOVERED, undetected

pytestmark = pytest.mark.soak
NAMES = [name for name in GOLDEN_NAMES if name not in {"empty-5x", "torn-5x"}]


@pytest.mark.parametrize("name", NAMES)
def test_no_clean_verdict_on_other_rows(tmp_path, soak_seconds, soak_seed, name):
    deadline = time.monotonic() + soak_seconds / len(NAMES)
    chance = random.Random(soak_seed)
    count, unseen = undetected(
        golden(name), tmp_path, chance, lambda _: time.monotonic() < deadline
    )
    fields = Counter(damage.field for damage, _ in unseen)
    print(f"\n{name}: {count} damages; not seen: {dict(fields)}")
    assert [found for found in unseen if found[0].field not in UNCOVERED] == []
