# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from store_core.files.store_directory import StoreDirectory
from store_core.layout import BATCH_CQ_UNIT
from store_core.queue.batch_consume_queue import read_batch_units
from store_core.queue.queue_directories import BATCH_CONSUME_QUEUE
from store_core.queue.unit_placement import Appended
from tests.store_core.queue.queue_writers import open_batch_writer
from tests.store_core.queue.test_consume_queue_writer import requests_of

FILE_SIZE = 3 * BATCH_CQ_UNIT.size


def batches(sizes, start=0, base=0):
    """Records of 10 bytes that hold so many messages each."""
    bases = base + np.cumsum([0, *sizes])[:-1]
    rows = [(start + 10 * i, 10, 0) for i in range(len(sizes))]
    columns = {"base_queue_offset": bases, "batch_size": np.array(sizes, np.int16)}
    return requests_of(rows, **columns)


def read(path):
    directory = StoreDirectory(str(path))
    segments = BATCH_CONSUME_QUEUE.segments(directory, str(path), FILE_SIZE)
    return [tuple(unit) for unit in read_batch_units(directory, segments).tolist()]


def test_units_roll_over_files(tmp_path):
    writer = open_batch_writer(tmp_path, FILE_SIZE)
    assert writer.append(batches([2, 1, 5, 1])) == Appended(4)
    assert writer.append(batches([3], 40, 9)) == Appended(1)
    writer.flush()
    assert read(tmp_path) == [
        (0, 10, 100, 5000, 0, 2, -1, 0),
        (10, 10, 101, 5001, 2, 1, -1, 0),
        (20, 10, 102, 5002, 3, 5, -1, 0),
        (30, 10, 103, 5003, 8, 1, -1, 0),
        (40, 10, 100, 5000, 9, 3, -1, 0),
    ]
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [FILE_SIZE] * 2


def test_a_queue_begins_at_its_first_file_wherever_its_offsets_begin(tmp_path):
    open_batch_writer(tmp_path, FILE_SIZE).append(batches([2], 500, 77))
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]
    assert read(tmp_path) == [(500, 10, 100, 5000, 77, 2, -1, 0)]


def test_what_is_in_the_queue_is_skipped(tmp_path):
    writer = open_batch_writer(tmp_path, FILE_SIZE)
    writer.append(batches([2, 1]))
    resumed = open_batch_writer(tmp_path, FILE_SIZE)
    assert resumed.append(batches([2, 1, 4])) == Appended(1, known=2)
    assert resumed.append(batches([2, 1, 4])) == Appended(known=3)
    assert [unit[0] for unit in read(tmp_path)] == [0, 10, 20]


def test_what_readers_would_stop_at_is_left_out(tmp_path):
    writer = open_batch_writer(tmp_path, FILE_SIZE)
    rows = batches([0, -2, 1, 1])
    rows.base_queue_offset[:] = [0, 0, -2, -1]
    assert writer.append(rows) == Appended(0, unusable=4)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ([5, 7, 8], [5, 7, 8]),
        ([5, 99, 8], [5, 7, 8]),
        ([5, -1, 8], [5, 7, 8]),
        ([99, 7, 8], [5, 7, 8]),
        ([5, 7, 3], [5, 7, 8]),
        ([5, 7, 0], [5, 7, 0]),  # the topic was recreated
        ([5, 17, 18], [5, 17, 18]),  # batches between them are lost
    ],
)
def test_a_queue_offset_that_its_neighbours_belie_is_put_right(tmp_path, said, stored):
    rows = batches([2, 1, 4])
    rows.base_queue_offset[:] = said
    assert open_batch_writer(tmp_path, FILE_SIZE).append(rows) == Appended(3)
    assert [unit[4] for unit in read(tmp_path)] == stored
