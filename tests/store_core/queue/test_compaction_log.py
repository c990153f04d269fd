# SPDX-License-Identifier: Apache-2.0
"""Compacted logs: those of a real broker, damage to them, and files replaced meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from store_core.errors import StoreFormatError, StoreReadError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import BATCH_CQ_UNIT
from store_core.log.log_scan import BatchSizer
from store_core.queue import compaction_log
from store_core.queue.compaction_log import CompactionLog, compacted_queues
from tests.golden_compacted import TOPIC, received, unpack_compacted
from tests.golden_store import tree_state

OFFSETS = [*range(5), *range(64, 84)]
"""Queue offsets that compaction left in each queue."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack_compacted(tmp_path)


def opened(root: Path, queue_id: int = 0, **options) -> CompactionLog:
    return CompactionLog(StoreDirectory(str(root)), TOPIC, queue_id, **options)


def offsets(log: CompactionLog) -> list[int]:
    sizer = BatchSizer(1000, 1 << 20)
    found = [part.frames.column("queue_offset") for part in log.parts(sizer)]
    return np.concatenate([np.empty(0, int), *found]).tolist()


def files(root: Path, kind: str, queue_id: int = 0) -> list[Path]:
    return sorted((root / "compaction" / kind / TOPIC / str(queue_id)).iterdir())


def change(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def test_units_and_records_are_those_that_a_client_received(root):
    before = tree_state(root)
    assert compacted_queues(StoreDirectory(str(root))) == ((TOPIC, 0), (TOPIC, 1))
    for queue_id in range(2):
        with opened(root, queue_id) as log:
            told = [r["queue_offset"] for r in received() if r["queue_id"] == queue_id]
            assert offsets(log) == told == OFFSETS
            assert (log.min_offset, log.max_offset) == (0, 84)
            assert log.file_gaps == log.unit_gaps == []
    assert tree_state(root) == before


@pytest.mark.parametrize("rows", [1, 3, 1000])
@pytest.mark.parametrize("size", [1, 600, 1 << 20])
def test_batches_of_any_size_hold_the_same_records(root, rows, size):
    with opened(root) as log:
        found = [p.frames.column("queue_offset") for p in log.parts(BatchSizer(rows, size))]
    assert all(len(some) <= rows for some in found)
    assert np.concatenate(found).tolist() == OFFSETS


def test_a_range_of_queue_offsets(root):
    with opened(root, within=(3, 70)) as log:
        assert offsets(log) == [3, 4, 64, 65, 66, 67, 68, 69]


def test_left_over_folders_of_a_compaction_are_not_looked_at(root):
    for kind in ("compactionLog", "compactionCq"):
        for name in ("compacting", "replicating"):
            folder = files(root, kind)[0].parent / name
            folder.mkdir()
            shutil.copy(files(root, kind)[0], folder)
    with opened(root) as log:
        assert offsets(log) == OFFSETS
        assert log.file_gaps == []


def test_a_unit_without_its_record_is_a_gap(root):
    unit = BATCH_CQ_UNIT.table(files(root, "compactionCq")[0].read_bytes())[2]
    at = int(unit["commit_log_offset"])
    change(files(root, "compactionLog")[0], at + 20, (1).to_bytes(8, "big"))  # its queue offset
    with opened(root) as log:
        assert offsets(log) == [o for o in OFFSETS if o != 2]
        (gap,) = log.unit_gaps
    assert (gap.commit_log_offset, gap.bytes_lost) == (at, unit["message_size"])
    assert (gap.path, gap.position) == (str(files(root, "compactionCq")[0]), 2 * BATCH_CQ_UNIT.size)
    assert "has no matching record" in gap.reason


@pytest.mark.parametrize(
    ("field", "value"),
    [("commit_log_offset", 2**62), ("message_size", 2**31 - 1), ("base_queue_offset", 77)],
)
def test_a_unit_of_garbage_is_a_gap(root, field, value):
    path = files(root, "compactionCq")[0]
    width = BATCH_CQ_UNIT.dtype[field].itemsize
    change(path, 46 + BATCH_CQ_UNIT.at(field), value.to_bytes(width, "big"))
    with opened(root) as log:
        assert offsets(log) == [o for o in OFFSETS if o != 1]
        assert len(log.unit_gaps) == 1


def test_units_behind_one_that_is_none_are_told_of(root):
    change(files(root, "compactionCq")[0], 46 * 3, bytes(46))
    with opened(root) as log:
        assert offsets(log) == [0, 1, 2, *range(76, 84)]
        (gap,) = log.file_gaps
    assert gap.position == 46 * 3
    assert gap.reason.startswith("13 units after an invalid one")


@pytest.mark.parametrize("kind", ["compactionLog", "compactionCq"])
def test_a_file_without_partner_is_a_gap(root, kind):
    lost = files(root, kind)[0]
    lost.unlink()
    with opened(root) as log:
        assert offsets(log) == list(range(76, 84))
        (gap,) = log.file_gaps
    assert Path(gap.path).name == lost.name
    assert "has no file of this name" in gap.reason


@pytest.mark.parametrize("kind", ["compactionLog", "compactionCq"])
def test_a_lost_directory_is_not_an_empty_queue(root, kind):
    shutil.rmtree(files(root, kind)[0].parent)
    assert (TOPIC, 0) in compacted_queues(StoreDirectory(str(root)))
    with opened(root) as log:
        assert offsets(log) == []
        assert len(log.file_gaps) == 2


def test_names_that_no_file_can_have(root):
    path = files(root, "compactionLog")[0]
    path.with_name("9" * 20).mkdir()
    with pytest.raises(StoreFormatError, match="a directory, where a regular file was expected"):
        opened(root)
    path.with_name("9" * 20).rmdir()
    path.rename(path.with_name("9" * 20))
    with pytest.raises(StoreFormatError, match="larger than a byte offset can be"):
        opened(root)


def test_files_that_a_broker_replaces_meanwhile_change_nothing(root):
    with opened(root) as log:
        for kind in ("compactionLog", "compactionCq"):
            for path in files(root, kind):
                path.rename(path.with_name(path.name + ".delete"))
                path.with_name(path.name + ".delete").unlink()
        assert offsets(log) == OFFSETS


def replacing(root: Path, monkeypatch, swaps: list) -> None:
    """Let a broker replace files each time that the reader lists the log."""
    listed = StoreDirectory.list

    def list_and_swap(self, path):
        entries = listed(self, path)
        if "compactionLog" in path and swaps:
            swaps.pop(0)()
        return entries

    monkeypatch.setattr(StoreDirectory, "list", list_and_swap)


@pytest.mark.parametrize("is_live", [True, False])
def test_files_that_are_replaced_while_they_are_opened_are_opened_again(root, monkeypatch, is_live):
    log_file, queue_file = (files(root, kind)[0] for kind in ("compactionLog", "compactionCq"))

    def away():
        log_file.rename(log_file.with_name(log_file.name + ".delete"))

    def back():
        log_file.with_name(log_file.name + ".delete").rename(log_file)

    replacing(root, monkeypatch, [away, back] if is_live else [away, lambda: None, back])
    if is_live:
        with opened(root, is_live=True) as log:
            assert offsets(log) == OFFSETS
            assert log.file_gaps == []
    else:  # it is missing while no broker writes: that is reported as damage
        with opened(root) as log:
            assert [gap.path for gap in log.file_gaps] == [str(queue_file)]


def test_files_that_change_all_the_time_are_an_error(root, monkeypatch):
    monkeypatch.setattr(compaction_log, "_LONGEST_WAIT_S", 0)
    path = files(root, "compactionLog")[-1]
    replacing(root, monkeypatch, [lambda: path.write_bytes(path.read_bytes() + b"\0")] * 2)
    with pytest.raises(StoreReadError, match="keeps replacing"):
        opened(root)
