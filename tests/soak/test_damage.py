"""Damage at every byte of a small store, then random damage until the time is over."""

from __future__ import annotations

import random
import time

import pytest

from tests.store_core.damage import Sweep
from tests.store_factory import small_store

SEGMENT = 1024
pytestmark = pytest.mark.soak


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
