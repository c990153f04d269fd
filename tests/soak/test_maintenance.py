"""Sequences of maintenance on damaged stores, one after the other, until the time is over."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest

from tests.maintenance.sequences import is_large, run_sequence

pytestmark = pytest.mark.soak


def test_no_message_is_lost_and_all_doors_agree(soak_seconds, soak_seed, capsys):
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + soak_seconds
    broken = []
    for seed in itertools.count(soak_seed * 1_000_000):
        run = run_sequence(seed)
        counts += run.counts
        counts["large" if is_large(seed) else "small"] += 1
        broken += [run.text] if run.failure else []
        if time.monotonic() > deadline:
            break
    with capsys.disabled():
        print(f"\n{dict(counts)}")
    assert broken == []
