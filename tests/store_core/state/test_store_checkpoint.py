from __future__ import annotations

import struct
from dataclasses import asdict

import pytest

from store_core.files.store_directory import StoreDirectory
from store_core.state.checkpoint import StoreCheckpoint, load_checkpoint
from tests.golden_store import STORE_NAMES, golden


@pytest.mark.parametrize("name", STORE_NAMES)
def test_golden_checkpoints(name):
    store = golden(name)
    checkpoint = asdict(load_checkpoint(StoreDirectory(str(store.root))))
    expected = store.meta["checkpoint_file"]
    assert {key: checkpoint[key] for key in expected} == expected


def test_a_missing_file_is_none(tmp_path):
    assert load_checkpoint(StoreDirectory(str(tmp_path))) is None


@pytest.mark.parametrize("length", range(50))
def test_a_short_file_has_fewer_fields(length):
    data = struct.pack(">7q", 10_000, 7_000, 3, 4, 5, 6, 7)[:length]
    values = list(asdict(StoreCheckpoint.from_bytes(data)).values())
    assert values == ([10_000, 7_000, 3, 4, 5, 6][: length // 8] + [None] * 6)[:6]


@pytest.mark.parametrize(
    ("physic", "logics", "expected"),
    [(10_000, 7_000, 4_000), (2_000, 7_000, 0), (None, None, 0), (10_000, None, 0)],
)
def test_min_timestamp_has_a_margin_of_three_seconds(physic, logics, expected):
    assert StoreCheckpoint(physic, logics).min_timestamp == expected
