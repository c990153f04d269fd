# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import struct
from dataclasses import asdict
from pathlib import Path

import pytest

from store_core.errors import StoreReadError, StoreWriteError
from store_core.files import file_writing
from store_core.files.store_directory import StoreDirectory
from store_core.state.checkpoint import CheckpointFile, StoreCheckpoint, load_checkpoint
from tests.golden_store import STORE_NAMES, golden

NAMES = (
    "physic_msg_timestamp",
    "logics_msg_timestamp",
    "index_msg_timestamp",
    "master_flushed_offset",
    "confirm_phy_offset",
    "logics_physical_offset",
)


def numbers(checkpoint):
    return [getattr(checkpoint, name) for name in NAMES]


@pytest.fixture
def checkpoint(tmp_path):
    made = CheckpointFile(str(tmp_path / "store" / "checkpoint"))
    yield made
    made.close()


def test_a_missing_file_has_zeros_and_is_made_by_the_first_flush(checkpoint, tmp_path):
    checkpoint.load()
    assert numbers(checkpoint) == [0] * 6
    checkpoint.physic_msg_timestamp = 5
    checkpoint.confirm_phy_offset = 1 << 40
    checkpoint.flush()
    data = (tmp_path / "store" / "checkpoint").read_bytes()
    assert data == struct.pack(">6q", 5, 0, 0, 0, 1 << 40, 0).ljust(4096, b"\0")


def test_what_was_flushed_is_loaded(checkpoint):
    for number, name in enumerate(NAMES):
        setattr(checkpoint, name, 100 + number)
    checkpoint.flush()
    again = CheckpointFile(checkpoint.path)
    again.load()
    assert numbers(again) == [100, 101, 102, 103, 104, 105]


@pytest.mark.parametrize("length", [0, 7, 24, 39, 47])
def test_a_short_file_is_filled_up_with_zeros(checkpoint, tmp_path, length):
    path = tmp_path / "store" / "checkpoint"
    path.parent.mkdir()
    path.write_bytes(struct.pack(">6q", 1, 2, 3, 4, 5, 6)[:length])
    checkpoint.load()
    whole = length // 8
    assert numbers(checkpoint) == [1, 2, 3, 4, 5, 6][:whole] + [0] * (6 - whole)
    checkpoint.flush()
    assert path.stat().st_size == 4096


@pytest.mark.parametrize("name", ["classic-5x", "classic-4x", "crashed-551"])
def test_rocketmqs_own_files(name):
    store = golden(name)
    path = store.root / "checkpoint"
    checkpoint = CheckpointFile(str(path))
    checkpoint.load()
    assert path.read_bytes()[:48] == struct.pack(">6q", *numbers(checkpoint))
    assert 0 < checkpoint.min_timestamp <= checkpoint.physic_msg_timestamp - 3000


def test_a_negative_time_is_written_as_unknown(checkpoint):
    """A record can have one if its store time is damaged."""
    checkpoint.physic_msg_timestamp, checkpoint.index_msg_timestamp = -5, 7
    checkpoint.flush()
    checkpoint.load()
    assert numbers(checkpoint) == [0, 0, 7, 0, 0, 0]


def test_unchanged_numbers_are_not_written_again(checkpoint, monkeypatch):
    syncs = []
    monkeypatch.setattr(file_writing, "sync_data", syncs.append)
    checkpoint.flush()
    checkpoint.flush()
    assert len(syncs) == 1
    checkpoint.logics_msg_timestamp = 1
    checkpoint.flush()
    assert len(syncs) == 2


def test_a_failed_flush_is_done_again(checkpoint, monkeypatch):
    def fails(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fdatasync", fails)
        with pytest.raises(StoreWriteError, match="checkpoint: No space left on device: free"):
            checkpoint.flush()
    directories = []
    monkeypatch.setattr(file_writing, "flush_directory", directories.append)
    checkpoint.flush()
    assert directories == [str(Path(checkpoint.path).parent)]


def test_what_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(StoreReadError, match="directory"):
        CheckpointFile(str(tmp_path)).load()


def test_fields_of_later_releases_stay_as_they_are(checkpoint, tmp_path):
    path = tmp_path / "store" / "checkpoint"
    path.parent.mkdir()
    path.write_bytes(struct.pack(">8q", *range(1, 9)).ljust(4096, b"\0"))
    checkpoint.load()
    checkpoint.physic_msg_timestamp = 100
    checkpoint.flush()
    assert path.read_bytes() == struct.pack(">8q", 100, *range(2, 9)).ljust(4096, b"\0")


@pytest.mark.parametrize(
    ("before", "for_5_5", "after"), [(0, False, 0), (0, True, 9), (3, False, 9)]
)
def test_the_place_of_the_last_dispatch_is_kept_for_5_5_alone(checkpoint, before, for_5_5, after):
    checkpoint.logics_physical_offset = before
    checkpoint.flush()
    again = CheckpointFile(checkpoint.path)
    again.load()
    again.for_5_5 |= for_5_5
    again.set_dispatched(9, 50)
    again.set_dispatched(-1, 0)
    assert numbers(again) == [0, 50, 0, 0, 0, after]


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
