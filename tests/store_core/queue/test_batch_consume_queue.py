# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from store_core.errors import CorruptRecordError
from store_core.files.store_directory import StoreDirectory
from store_core.layout import BATCH_CQ_UNIT
from store_core.queue.batch_consume_queue import (
    find_unit,
    max_queue_offset,
    min_queue_offset,
    read_batch_units,
)
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE, list_consume_queues
from store_core.queue.readable_queue import LOWER, UPPER, BatchQueue
from tests.golden_store import golden


def write_queue(root, units, units_per_file=4):
    path = root / "batchconsumequeue" / "T" / "0"
    path.mkdir(parents=True)
    size = BATCH_CQ_UNIT.size
    for number in range(0, len(units), units_per_file):
        part = units[number : number + units_per_file]
        data = b"".join(BATCH_CQ_UNIT.struct.pack(*unit) for unit in part)
        (path / f"{number * size:020d}").write_bytes(data.ljust(units_per_file * size, b"\0"))
    return path


def units_of(count, batch=3):
    return [(n * 100, 100, n, 5, n * batch, batch, -1, 0) for n in range(count)]


def read(path):
    directory = StoreDirectory(str(path.parents[2]))
    return read_batch_units(directory, BATCH_CONSUME_QUEUE.segments(directory, str(path), None))


def test_golden_units_and_bounds():
    store = golden("batch-5x")
    directory = StoreDirectory(str(store.root))
    queues = list_consume_queues(directory, BATCH_CONSUME_QUEUE).queues
    rows = [row for row in store.dump("consume_queue") if row["type"] == "BatchCQ"]
    assert len(rows) == len(queues) == 2
    for row in rows:
        key = row["topic"], row["queue_id"]
        segments = BATCH_CONSUME_QUEUE.segments(directory, queues[key], None)
        units = read_batch_units(directory, segments)
        assert [list(unit)[:7] for unit in units.tolist()] == row["batch_units"]
        assert min_queue_offset(units, store.meta["min_phy_offset"]) == row["min_offset"]
        assert max_queue_offset(units) == row["max_offset"]


def test_every_queue_offset_is_found_in_its_unit(tmp_path):
    units = read(write_queue(tmp_path, units_of(10)))
    assert [find_unit(units, q) for q in range(30)] == [q // 3 for q in range(30)]
    assert find_unit(units, 30) is None
    assert find_unit(units[2:], 5) is None


@pytest.mark.parametrize(("min_phy", "first"), [(0, 0), (1, 3), (500, 15), (900, 27), (901, 30)])
def test_min_offset_follows_the_log(tmp_path, min_phy, first):
    units = read(write_queue(tmp_path, units_of(10)))
    assert min_queue_offset(units, min_phy) == first


@pytest.mark.parametrize("bad", [(-1, 9, 0, 0, 0, 1, 0, 0), (0, 0, 0, 0, 0, 1, 0, 0)])
def test_units_end_at_the_first_invalid_one(tmp_path, bad):
    units = units_of(10)
    units[6] = bad
    assert len(read(write_queue(tmp_path, units))) == 6


def test_an_invalid_unit_in_an_older_file_is_damage(tmp_path):
    units = units_of(20)
    units[2] = (0, 100, 0, 0, 6, 0, 0, 0)
    with pytest.raises(CorruptRecordError, match="at byte 92"):
        read(write_queue(tmp_path, units))


def test_a_lost_file_is_damage(tmp_path):
    path = write_queue(tmp_path, units_of(12))
    (path / f"{4 * BATCH_CQ_UNIT.size:020d}").unlink()
    with pytest.raises(CorruptRecordError, match="missing"):
        read(path)


def test_a_queue_without_units(tmp_path):
    path = write_queue(tmp_path, [(0,) * 8])
    units = read(path)
    assert (min_queue_offset(units, 0), max_queue_offset(units)) == (-1, 0)
    assert find_unit(units, 0) is None
    assert isinstance(units, np.ndarray)


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [
        (5, 0, 0),
        (10, 0, 0),
        (11, 3, 0),
        (20, 3, 3),  # the last unit of the first file
        (25, 3, 3),  # between two files: that of the older one
        (30, 6, 6),
        (31, 9, 6),
        (40, 9, 9),
        (45, 9, 9),
        (50, 12, 12),
        (51, 12, 12),
    ],
)
def test_offsets_by_time_between_files_are_those_of_rocketmq(tmp_path, time, lower, upper):
    units = [(n * 100, 100, n, 10 * n + 10, n * 3, 3, -1, 0) for n in range(5)]
    queue = BatchQueue(read(write_queue(tmp_path, units, 2)), 2, 0)
    assert queue.offset_by_time(time, LOWER, None) == lower
    assert queue.offset_by_time(time, UPPER, None) == upper
