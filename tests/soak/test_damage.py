# SPDX-License-Identifier: Apache-2.0
"""Damage at every byte of a small store, then random damage until the time is over."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from collections import Counter

import pytest

from tests.golden_store import GOLDEN_NAMES, golden
from tests.hostile.commands import COMMANDS
from tests.hostile.pool import run_stores
from tests.hostile.running import COMMANDS_PER_STORE
from tests.maintenance.sequences import is_large, run_sequence
from tests.rmqsource.damaged_byte import UNCOVERED, undetected
from tests.store_core.damage import Sweep
from tests.store_core.tools.salvage.damage import damaged, judge, salvage
from tests.store_factory import small_store

pytestmark = pytest.mark.soak

SEGMENT = 1024
NAMES = [name for name in GOLDEN_NAMES if name not in {"empty-5x", "torn-5x"}]
_AT_LEAST = 200
_STORES = int(os.environ.get("SOAK_STORES", "10000"))


@pytest.fixture
def sweep(tmp_path):
    found = Sweep(small_store(tmp_path / "store", 18, segment_bytes=SEGMENT))
    yield found
    errors = ", ".join(f"{name}: {count}" for name, count in sorted(found.errors.items()))
    print(f"\n{found.cases} cases; errors: {errors}")
    for field, count in found.undetected.most_common():
        print(f"  undetected in {field}: {count}")


def test_every_segment_cut_at_every_byte(sweep):
    for path in sweep.segments():
        for length in range(len(sweep.files[path])):
            sweep.truncate_segment(path, length)


def test_every_byte_of_every_segment_changed(sweep):
    for path in sweep.segments():
        for at, byte in enumerate(sweep.files[path]):
            sweep.change_segment(path, at, bytes([byte ^ 0xFF]))


def test_every_byte_of_every_other_file_changed_and_cut(sweep):
    for path in sweep.others():
        content = sweep.files[path]
        for at, byte in enumerate(content[:1024]):
            sweep.change_other(path, content[:at] + bytes([byte ^ 0xFF]) + content[at + 1 :])
            sweep.change_other(path, content[:at])


def test_random_damage(sweep, soak_seconds, soak_seed):
    chance = random.Random(soak_seed)
    deadline = time.monotonic() + soak_seconds
    while time.monotonic() < deadline:
        if chance.random() < 0.7:
            path = chance.choice(sweep.segments())
            at = chance.randrange(len(sweep.files[path]))
            length = chance.choice([1, 2, 4, 8, 100, 1000])
            sweep.change_segment(path, at, chance.randbytes(length)[: SEGMENT - at])
        else:
            path = chance.choice(sweep.others())
            content = bytearray(sweep.files[path])
            at = chance.randrange(max(len(content), 1))
            content[at : at + chance.choice([1, 4, 20])] = chance.randbytes(chance.choice([1, 4]))
            sweep.change_other(path, bytes(content))


# One damaged byte at a random place of every kind of golden store, until the time is over.


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


# Golden stores damaged at random and salvaged: 200 of them, then until the time is over.


def test_random_damage_is_salvaged(tmp_path, soak_seconds, soak_seed):
    deadline, number = time.monotonic() + soak_seconds, 0
    while number < _AT_LEAST or time.monotonic() < deadline:
        directory = tmp_path / "case"
        damage = damaged(soak_seed * 1_000_003 + number, directory)
        report = salvage(damage, directory / "new")
        judge(damage, directory / "new", report)
        shutil.rmtree(directory)
        number += 1
    print(f"\n{number} stores damaged and salvaged")


# Ten thousand mutated stores, three commands each: no surprise, no hang, no waste of memory.


def test_every_command_over_mutated_stores(capsys, soak_seed):
    tally = run_stores(soak_seed, range(_STORES))
    with capsys.disabled():
        print(f"\n{tally.text(soak_seed)}")
    assert not tally.failures
    least = _STORES * COMMANDS_PER_STORE // len(COMMANDS)
    assert all(tally.commands[name] >= least for name in COMMANDS), tally.commands


# Sequences of maintenance on damaged stores, one after the other, until the time is over.


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
